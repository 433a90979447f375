"""ServerJournal: what the session store tells the state of the server of each run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ...errors import ExecutorStopped, SessionError, WorkspaceError
from ..owners import Owner
from ..refusals import Refusal
from ..state.records import AuditRecord, OtherSession, SessionAction
from .session import HostedSession, SessionRun


class ServerJournal(Protocol):
    """Records runs, and counts what keys use. Only `check` waits."""

    async def check(self, owner: Owner) -> None:
        """Raise `TooManyRuns` if the key has used up its CPU seconds, `BackendError` if runs
        cannot be recorded.
        """
        ...

    def check_records(self) -> None:
        """Raise `BackendError` if nothing can be recorded."""
        ...

    def add_cpu_seconds(self, owner: Owner, cpu_seconds: float) -> None:
        """Count CPU seconds of a key."""
        ...

    def add_run(self, record: AuditRecord) -> None:
        """Record and count a run that has ended."""
        ...

    def add_action(self, record: AuditRecord) -> None:
        """Record what a key has done besides runs."""
        ...

    # sessions

    async def check_sessions(self, owner: Owner, own_count: int) -> None:
        """Raise `TooManySessions` if the owner has as many on all servers as the key may have.

        `own_count` is how many this server has.
        """
        ...

    async def reserve(
        self, owner: Owner, session_id: str, identifier: str, own_count: int, expires_at: float
    ) -> None:
        """Say that this server makes a session, which ends at `expires_at` if it is not used.

        Raise as `check_sessions`, or `SessionElsewhere` if another server has one with this
        identifier.
        """
        ...

    def release(self, session_id: str, ending: str) -> None:
        """Say that a session does not exist any more."""
        ...

    def use(self, session_id: str, expires_at: float) -> None:
        """Say that a session is used now, and when it ends otherwise."""
        ...

    def add_session(self, record: AuditRecord) -> None:
        """Record the start or the end of a session."""
        ...

    async def others(self, owner: Owner) -> Sequence[OtherSession]:
        """Return the sessions of an owner that other servers have, oldest first."""
        ...

    async def check_elsewhere(self, owner: Owner, identifier: str) -> None:
        """Raise `SessionElsewhere` if another server has the session."""
        ...


class NoJournal:
    """The journal of a server that keeps no state."""

    async def check(self, owner: Owner) -> None:
        """Do nothing."""

    def check_records(self) -> None:
        """Do nothing."""

    def add_cpu_seconds(self, owner: Owner, cpu_seconds: float) -> None:
        """Do nothing."""

    def add_run(self, record: AuditRecord) -> None:
        """Do nothing."""

    def add_action(self, record: AuditRecord) -> None:
        """Do nothing."""

    async def check_sessions(self, owner: Owner, own_count: int) -> None:
        """Do nothing."""

    async def reserve(
        self, owner: Owner, session_id: str, identifier: str, own_count: int, expires_at: float
    ) -> None:
        """Do nothing."""

    def release(self, session_id: str, ending: str) -> None:
        """Do nothing."""

    def use(self, session_id: str, expires_at: float) -> None:
        """Do nothing."""

    def add_session(self, record: AuditRecord) -> None:
        """Do nothing."""

    async def others(self, owner: Owner) -> Sequence[OtherSession]:
        """Return nothing."""
        return ()

    async def check_elsewhere(self, owner: Owner, identifier: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class Action:
    """What a request is about to do with a session. See `AuditRecord`."""

    name: SessionAction
    target: str | None = None
    size_bytes: int | None = None


@contextlib.contextmanager
def recorded_action(
    journal: ServerJournal, owner: Owner, session: HostedSession, action: Action | None
) -> Generator[None]:
    """Record an action that takes the time of the context, however it ends; nothing for None.

    Raise `BackendError` if it cannot be recorded.
    """
    if action is None:
        yield
        return
    journal.check_records()
    began, began_clock = time.time(), time.monotonic()
    outcome = "ok"
    try:
        yield
    except BaseException as error:
        outcome = _outcome_of(error)
        raise
    finally:
        record = AuditRecord(
            time=began,
            key_id=owner.id,
            key_name=owner.name,
            door=owner.door,
            action=action.name,
            session=session.identifier,
            outcome=outcome,
            seconds=round(time.monotonic() - began_clock, 6),
            target=action.target,
            size_bytes=action.size_bytes,
        )
        journal.add_action(record)


def _outcome_of(error: BaseException) -> str:
    match error:
        case asyncio.CancelledError() | GeneratorExit():
            return "abandoned"
        case ExecutorStopped():
            return "stopped"
        case Refusal() | SessionError() | WorkspaceError():
            return "refused"
        case _:
            return "failed"


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


def session_record(
    action: Literal["session.start", "session.end"],
    owner: Owner,
    session: HostedSession,
    outcome: str,
) -> AuditRecord:
    """Return what is recorded of the start or the end of a session."""
    return AuditRecord(
        time=time.time(),
        key_id=owner.id,
        key_name=owner.name,
        door=owner.door,
        action=action,
        session=session.identifier,
        outcome=outcome,
        seconds=round(time.time() - session.created_at, 6) if action == "session.end" else 0.0,
    )
