"""Runs in fresh processes: each has an empty folder, a session that ends with the run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from ...batch.program_runs import NotInstalled
from ...batch.programs import JudgeLimits, Program
from ...batch.verdicts import Verdict
from ...blocks import CodeBlock
from ...events import Event
from ...results import CodeResult
from ..owners import Owner
from .executors import Work
from .session import HostedSession, SessionRun, translate_stop
from .store import SessionStore

Execute = Callable[[Work, float | None], Awaitable[CodeResult]]
# How the run of a program with a verdict has ended, for the audit log.
_RUN_OUTCOMES = {
    "passed": "ok",
    "failed": "error",
    "error": "error",
    "timeout": "timeout",
    "limit": "killed",
    "not_judged": "refused",
}
Gate = AbstractAsyncContextManager[object]


async def stream_fresh(
    store: SessionStore,
    owner: Owner,
    block: CodeBlock,
    *,
    run: SessionRun,
    run_seconds: float | None = None,
    on_admitted: Callable[[], object] = lambda: None,
) -> AsyncGenerator[Event]:
    """Run a block as `SessionStore.stream` does, but in a fresh process and an empty folder."""
    async with _turn(store, owner, run, on_admitted) as session:
        events = store.count_events(owner, run, session.stream(run, block, run_seconds))
        async with contextlib.aclosing(events):
            async for event in events:
                yield event


@contextlib.asynccontextmanager
async def fresh_programs(
    store: SessionStore, owner: Owner, language: str, gate: Gate | None = None
) -> AsyncGenerator[tuple[HostedSession, Execute]]:
    """Wait for a turn, and yield an empty folder and a function that runs programs in it.

    Each block or program is a fresh process, and all together count as one run in `language`.
    The folder is a session that ends with the context. `gate` bounds such batches further.
    Raises as `SessionStore.use` and `run` do.
    """
    run = SessionRun(language=language)

    async def execute(work: Work, run_seconds: float | None) -> CodeResult:
        result = await session.execute(run, work, run_seconds)
        store.count(owner, run, result.usage.cpu_seconds, result.outcome)
        return result

    async with _turn(store, owner, run, gate=gate) as session:
        yield session, execute


async def judge_fresh(
    store: SessionStore, owner: Owner, program: Program, limits: JudgeLimits, gate: Gate
) -> Verdict:
    """Judge a program in an empty folder. All its runs count as one, and have the time of one.

    `gate` bounds such programs further. Raises as `SessionStore.run` does.
    """
    run = SessionRun(language=program.language)
    seconds = store.settings.run_seconds
    async with _turn(store, owner, run, gate=gate) as session:
        try:
            verdict, cpu_seconds = await session.judge(run, program, limits, seconds)
        except NotInstalled as error:
            verdict = Verdict(id=program.id, outcome="not_judged", message=str(error))
            cpu_seconds = 0.0
        store.count(owner, run, cpu_seconds, _RUN_OUTCOMES[verdict.outcome])
        return verdict


@contextlib.asynccontextmanager
async def _turn(
    store: SessionStore,
    owner: Owner,
    run: SessionRun,
    on_admitted: Callable[[], object] = lambda: None,
    gate: Gate | None = None,
) -> AsyncGenerator[HostedSession]:
    """Wait for a turn, then yield a session for fresh processes that ends with the context."""
    store.check_draining()
    await store.journal.check(owner)
    queued_at = time.monotonic()
    async with store.queue.admit(owner):
        on_admitted()
        async with (
            gate or contextlib.nullcontext(),
            store.queue.turn(owner),
            store.use_temporary(owner, store.factory.make_program) as session,
        ):
            run.queue_seconds = time.monotonic() - queued_at
            with translate_stop(session), store.recorded(owner, session, run):
                yield session
