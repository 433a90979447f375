"""StateJournal: write what keys use and do to the database, in the background."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Concatenate, ParamSpec, Self
from uuid import uuid4

from sqlalchemy import Engine

from ...errors import BackendError, CellblockError
from ..owners import Owner
from ..refusals import TooManyRuns
from .audit import clean_up
from .batch import Batch, leave, write
from .records import AuditRecord, OtherSession, ServerIdentity, storable
from .registry import (
    NameClaim,
    NewSessionRow,
    SessionEnd,
    SessionUse,
    elsewhere,
    read_others,
    reserve,
)
from .usage import SECONDS_A_DAY, cpu_seconds_of, today

Arguments = ParamSpec("Arguments")
MAX_WAITING = 10_000  # records in memory; nothing to record begins beyond that
_INTERVAL = 0.1  # seconds between batches
_HEARTBEAT = 10.0  # seconds between batches if there is nothing to write
_RETRY = 1.0  # seconds until the next attempt, if the database fails
_CLOSE = 10.0  # seconds for the last batches: the unit of systemd leaves 15
_CLEAN = 30.0  # seconds between removals of old records and dead servers
_log = logging.getLogger(__name__)


class StateJournal:
    """What a server tells the database. Use it with `async with`; leaving writes the rest.

    Belongs to one event loop. Records and usage wait in memory, and a thread writes them, at once
    if it is idle. If the database fails they wait until it works again, and new runs are refused
    once `MAX_WAITING` records wait: nothing goes unrecorded.

    audit_days   how long records are kept
    """

    def __init__(self, engine: Engine, name: str, audit_days: float) -> None:
        self._engine, self._audit_seconds = engine, audit_days * SECONDS_A_DAY
        self._server = ServerIdentity(uuid4().hex, storable(name), int(time.time()))
        self._waiting = Batch()
        self._current = Batch()  # that is being written
        self._number = 0  # of the batches that were written
        self._sessions = set[str]()  # the IDs of those that this server has
        self._uses, self._uses_taken_at = dict[str, SessionUse](), -math.inf
        self._is_failing = self._is_closing = False
        self._changed = asyncio.Event()
        # A thread of its own: those of the loop may all be at work.
        self._thread = ThreadPoolExecutor(1, "cellblock-journal")
        self._claim = NameClaim(self._server.name)

    async def __aenter__(self) -> Self:
        """Add the server to the database. Raise `BackendError`, also if its name is in use."""
        try:
            await self._call(self._claim.hold)
            await self._write()
            await self._clean_up()  # the sessions of an earlier process of this server
        except BaseException:
            self._claim.release()
            raise
        self._task = asyncio.ensure_future(self._work())
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._is_closing = True
        self._changed.set()
        try:
            async with asyncio.timeout(_CLOSE):
                await self._task
        except TimeoutError:
            _log.error("%d audit records are lost: the database fails", self._waiting_records)
        self._claim.release()
        self._thread.shutdown(wait=False)

    # what the server tells

    async def check(self, owner: Owner) -> None:
        """Raise `TooManyRuns` if the key has used up its CPU seconds of today, on all servers.

        Raise `BackendError` if too many records wait, or the database fails.
        """
        self.check_records()
        quota = owner.quotas.cpu_seconds_a_day
        if quota is not None and await self._cpu_seconds_today(owner.id) >= quota:
            raise TooManyRuns(
                f"This key has used its {quota:g} CPU seconds of today (UTC).",
                SECONDS_A_DAY - int(time.time()) % SECONDS_A_DAY,
            )

    def check_records(self) -> None:
        """Raise `BackendError` if too many records wait."""
        if self._waiting_records >= MAX_WAITING:
            raise BackendError(
                f"The database does not accept the audit log: {MAX_WAITING} records wait."
            )

    def add_cpu_seconds(self, owner: Owner, cpu_seconds: float) -> None:
        """Count CPU seconds of a key."""
        self._waiting.usage_of(owner.id, owner.name, today()).cpu_seconds += cpu_seconds
        self._changed.set()

    def add_run(self, record: AuditRecord) -> None:
        """Record and count a run that has ended. Its CPU seconds are counted already."""
        usage = self._waiting.usage_of(record.key_id, record.key_name, today())
        usage.runs += 1
        usage.run_seconds += record.seconds
        self.add_action(record)

    def add_action(self, record: AuditRecord) -> None:
        """Record what a key has done."""
        names = ("session", "run", "language", "target")
        texts = {name: storable(text) for name in names if (text := getattr(record, name))}
        time = round(record.time, 6)  # as clients see it, and send it as a filter
        self._waiting.audit.append(replace(record, time=time, server=self._server.name, **texts))
        self._changed.set()

    # sessions

    async def check_sessions(self, owner: Owner, own_count: int) -> None:
        """Raise `TooManySessions` if the owner has as many on all servers as the key may have.

        `own_count` is how many this server has.
        """
        if owner.quotas.sessions is not None:
            owner.check_session_quota(own_count + len(await self.others(owner)))

    async def reserve(
        self, owner: Owner, session_id: str, identifier: str, own_count: int, expires_at: float
    ) -> None:
        """Add a session that the server is about to make. See `registry.reserve`."""
        session = NewSessionRow(session_id, storable(identifier), expires_at)
        await asyncio.to_thread(reserve, self._engine, self._server, owner, session, own_count)
        self._sessions.add(session_id)

    def release(self, session_id: str, ending: str) -> None:
        """Say that a session does not exist any more."""
        self._sessions.discard(session_id)
        self._uses.pop(session_id, None)
        self._waiting.ends[session_id] = SessionEnd(ended_at=time.time(), ending=ending)
        self._changed.set()

    def use(self, session_id: str, expires_at: float) -> None:
        """Say that a session is used now, and when it ends otherwise. Known elsewhere later."""
        self._uses[session_id] = SessionUse(used_at=time.time(), expires_at=expires_at)

    def add_session(self, record: AuditRecord) -> None:
        """Record the start or the end of a session, and count the start."""
        if record.action == "session.start":
            self._waiting.usage_of(record.key_id, record.key_name, today()).sessions += 1
        self.add_action(record)

    async def others(self, owner: Owner) -> list[OtherSession]:
        """Return the sessions of an owner that other servers have. Raise `BackendError`."""
        return await asyncio.to_thread(read_others, self._engine, self._server.id, owner)

    async def check_elsewhere(self, owner: Owner, identifier: str) -> None:
        """Raise `SessionElsewhere` if another server has the session, `BackendError`."""
        for other in await self.others(owner):
            if other.identifier == storable(identifier):
                raise elsewhere(other)

    @property
    def _waiting_records(self) -> int:
        return len(self._waiting.audit) + len(self._current.audit)

    async def _cpu_seconds_today(self, key_id: str) -> float:
        while True:
            day, current = today(), self._current
            saved = await asyncio.to_thread(cpu_seconds_of, self._engine, key_id, day)
            if current is self._current:  # else a part may be counted twice, or not at all
                both = self._waiting, self._current
                return saved + sum(batch.cpu_seconds(key_id, day) for batch in both)

    # the task that writes

    async def _work(self) -> None:
        cleaned_at = time.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
                if time.monotonic() - cleaned_at >= _CLEAN:
                    await self._clean_up()
                    cleaned_at = time.monotonic()
            except Exception as error:  # the next attempt may succeed
                self._report_failure(error)
            else:
                self._report_success()
            is_written = self._waiting.is_empty and self._current.is_empty
            if self._is_closing and is_written:
                with contextlib.suppress(CellblockError):
                    await self._call(leave, self._server)
                return
            if not is_written:
                self._changed.set()
            await asyncio.sleep(_RETRY if self._is_failing else _INTERVAL)

    async def _write(self) -> None:
        if self._current.is_empty:  # else it has failed before
            self._take_uses()
            self._current, self._waiting = self._waiting, Batch()
            self._number += 1
        await self._call(write, self._server, self._number, self._current, set(self._sessions))
        self._current = Batch()

    def _take_uses(self) -> None:
        """Let the next batch say when sessions were used, but not each use."""
        now = time.monotonic()
        if now - self._uses_taken_at >= _HEARTBEAT:
            self._waiting.uses, self._uses, self._uses_taken_at = self._uses, {}, now

    async def _clean_up(self) -> None:
        await self._call(self._claim.hold)
        await self._call(clean_up, self._server, time.time() - self._audit_seconds)

    async def _call(
        self,
        work: Callable[Concatenate[Engine, Arguments], object],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> None:
        work_here = partial(work, self._engine, *arguments, **named)
        await asyncio.get_running_loop().run_in_executor(self._thread, work_here)

    def _report_failure(self, error: Exception) -> None:
        if not self._is_failing:
            is_known = isinstance(error, CellblockError)
            _log.warning(
                "Usage and audit records wait, because they cannot be written: %s",
                error,
                exc_info=None if is_known else error,
            )
        self._is_failing = True

    def _report_success(self) -> None:
        if self._is_failing:
            _log.warning("Usage and audit records are written again")
        self._is_failing = False
