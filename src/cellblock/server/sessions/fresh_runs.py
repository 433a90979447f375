"""Runs in fresh processes: each has an empty folder, a session that ends with the run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

from ...aio.shielded import end_by_token
from ...batch.program_runs import NotInstalled
from ...batch.programs import JudgeLimits, Program
from ...batch.verdicts import Verdict
from ...blocks import CodeBlock
from ...events import Event
from ...results import CodeResult
from ..owners import Owner
from .executors import Work
from .run_queue import CpuPlace
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
    store: SessionStore, owner: Owner, language: str, place: CpuPlace
) -> AsyncGenerator[tuple[HostedSession, Execute]]:
    """Wait for a turn, and yield an empty folder and a function that runs programs in it.

    Each block or program is a fresh process, and all together count as one run in `language`.
    The folder is a session that ends with the context. `place` bounds such batches further.
    Raises as `SessionStore.use` and `run` do.
    """
    run = SessionRun(language=language)

    async def execute(work: Work, run_seconds: float | None) -> CodeResult:
        return await store.execute(owner, session, run, work, run_seconds)

    async with _turn(store, owner, run, place=place) as session:
        yield session, execute


async def judge_fresh(
    store: SessionStore, owner: Owner, program: Program, limits: JudgeLimits, place: CpuPlace
) -> Verdict:
    """Judge a program in an empty folder. All its runs count as one, and have the time of one.

    `place` bounds such programs further. Raises as `SessionStore.run` does.
    """
    run = SessionRun(language=program.language)
    seconds = store.settings.run_seconds
    count = partial(store.count, owner, run, outcome="")  # it has none until the last of its runs
    async with _turn(store, owner, run, place=place) as session:
        try:
            judging = session.judge(run, program, limits, seconds, count)
            verdict = await end_by_token(judging, run.token)
        except NotInstalled as error:
            verdict = Verdict(id=program.id, outcome="not_judged", message=str(error))
        run.outcome = _RUN_OUTCOMES[verdict.outcome]
        return verdict


@contextlib.asynccontextmanager
async def _turn(
    store: SessionStore,
    owner: Owner,
    run: SessionRun,
    on_admitted: Callable[[], object] = lambda: None,
    place: CpuPlace | None = None,
) -> AsyncGenerator[HostedSession]:
    """Wait for a turn, then yield a session for fresh processes that ends with the context."""
    store.check_draining()
    await store.journal.check(owner)
    queued_at = time.monotonic()
    async with store.queue.admit(owner):
        on_admitted()
        async with (
            store.queue.turn(owner, place),
            store.use_temporary(owner, store.factory.make_program) as session,
        ):
            run.queue_seconds = time.monotonic() - queued_at
            with translate_stop(session), store.recorded(owner, session, run):
                yield session
