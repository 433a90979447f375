"""ServerJournal: what the session store tells the state of the server of each run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator
from typing import Protocol

from ...errors import ExecutorStopped
from ..owners import Owner
from ..refusals import Refusal
from ..state.records import AuditRecord
from .session import HostedSession, SessionRun


class ServerJournal(Protocol):
    """Records runs, and counts what keys use. Only `check` waits."""

    async def check(self, owner: Owner) -> None:
        """Raise `TooManyRuns` if the key has used up its CPU seconds, `BackendError` if runs
        cannot be recorded.
        """
        ...

    def add_cpu_seconds(self, owner: Owner, cpu_seconds: float) -> None:
        """Count CPU seconds of a key."""
        ...

    def add_run(self, record: AuditRecord) -> None:
        """Record and count a run that has ended."""
        ...


class NoJournal:
    """The journal of a server that keeps no state."""

    async def check(self, owner: Owner) -> None:
        """Do nothing."""

    def add_cpu_seconds(self, owner: Owner, cpu_seconds: float) -> None:
        """Do nothing."""

    def add_run(self, record: AuditRecord) -> None:
        """Do nothing."""


@contextlib.contextmanager
def recorded(
    journal: ServerJournal, owner: Owner, session: HostedSession, run: SessionRun
) -> Generator[None]:
    """Record a run that takes the time of the context, however it ends."""
    began, began_clock = time.time(), time.monotonic()
    outcome = "abandoned"
    try:
        yield
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except ExecutorStopped:
        outcome = "stopped"
        raise
    except Refusal:
        outcome = "refused"
        raise
    except BaseException:
        outcome = "failed"
        raise
    finally:
        record = AuditRecord(
            time=began,
            key_id=owner.id,
            key_name=owner.name,
            door=owner.door,
            action=run.action,
            session=session.identifier if session.is_live else None,
            run=run.id,
            language=run.language or None,
            outcome=run.outcome or outcome,
            seconds=round(time.monotonic() - began_clock, 6),
            cpu_seconds=round(run.cpu_seconds, 6),
        )
        journal.add_run(record)
