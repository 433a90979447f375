"""A request that is cancelled at any time leaves the session as it was, or as it was to become."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from cellblock import CancellationToken, CodeBlock, CodeResult, SandboxSessionServer
from cellblock.events import Display
from cellblock.executors.session.base import SessionExecutor
from cellblock.results import ResultBuilder
from cellblock.testing.liveness import wait_until
from tests.executors.session.live_session import LiveSession, open_session, run_async
from tests.executors.session.test_saved_values import NATIVE_THREAD

BIG = 32 << 20  # bytes, which take some time to be sent
STEPS = (0, 1, 2, 3, 5, 8, 20, 50)  # of the event loop before the cancellation
COUNT_CHILDREN = (
    "import os\nchildren = f'/proc/self/task/{os.getpid()}/children'\n"
    "print(len(open(children).read().split()))"
)
REQUESTS: dict[str, Callable[[SessionExecutor], Awaitable[Any]]] = {
    "get": lambda session: session.get("big"),
    "set": lambda session: session.set("other", b"a" * BIG),
    "variables": lambda session: session.variables(),
    "checkpoint": lambda session: session.checkpoint("new", replace=True),
    "restore": lambda session: session.restore("old"),
    "fork": lambda session: _fork(session),
}


async def _fork(session: SessionExecutor) -> None:
    for branch in await session.fork():
        await branch.stop()


async def _cancel(request: Awaitable[Any], steps: int) -> None:
    task = asyncio.ensure_future(request)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


def _has_no_other_child(live: LiveSession) -> bool:
    """Return whether checkpoints are the only children, after an order that reaps killed ones."""
    run_async(live.executor.checkpoint("new", replace=True))
    run_async(live.executor.drop("new"))  # it is reaped by the next order
    return int(live.run_ok(COUNT_CHILDREN)) == len(live.executor.checkpoints) + 1


@pytest.mark.parametrize("name", REQUESTS)
def test_a_cancelled_request_loses_nothing(name: str, shared: SandboxSessionServer) -> None:
    with open_session(shared, checkpoints=False) as live:
        live.run_ok(f"x = 1; big = b'a' * {BIG}")
        run_async(live.executor.checkpoint("old"))
        for steps in STEPS:
            run_async(_cancel(REQUESTS[name](live.executor), steps))
            after = live.run("x")
            assert (after.output, after.notice) == ("1\n", ""), (steps, after)
        asyncio.run(wait_until(lambda: _has_no_other_child(live), "each other child is reaped"))


@pytest.mark.slow
def test_a_cancelled_set_does_not_prevent_the_automatic_checkpoint(live: LiveSession) -> None:
    live.run_ok("x = 1")
    for steps in STEPS:
        run_async(_cancel(live.executor.set("big", b"a" * BIG), steps))
        for _ in range(2):
            after = live.run("x")
            assert (after.exit_code, after.notice) == (0, ""), (steps, after)


@pytest.mark.slow
def test_a_stop_while_a_display_is_sent_keeps_the_session(shared: SandboxSessionServer) -> None:
    code = (
        "from IPython.display import display\ninner = 2\n"
        "while True: display({'text/html': 'a' * (6 << 20)}, raw=True)"
    )

    async def run(live: LiveSession) -> Any:
        token, builder = CancellationToken(), ResultBuilder()
        async with aclosing(
            live.executor.execute_stream([CodeBlock(code, "python")], token)
        ) as events:
            async for event in events:
                builder.add_event(event)
                if isinstance(event, Display) and not token.is_cancelled():
                    token.cancel()
        return builder.session_result()

    with open_session(shared, timeout=20) as live:
        live.run_ok("x = 1")
        for _ in range(6):
            ended = run_async(run(live))
            assert (ended.outcome, ended.session_restored) == ("cancelled", False), ended
            assert live.run_ok("print(x, inner); del inner") == "1 2"


def test_a_cancelled_long_checkpoint_ends_no_session(shared: SandboxSessionServer) -> None:
    with open_session(shared, checkpoints=False) as live:
        # With such a thread, a checkpoint looks whether each variable can be saved.
        live.run_ok(
            f"{NATIVE_THREAD}import time\nclass Slow:\n"
            "    def __reduce__(self): open('saving', 'w'); time.sleep(2); return Slow, ()\n"
            "x = 1; slow = Slow()"
        )

        async def cancel() -> None:
            task = asyncio.ensure_future(live.executor.checkpoint())
            await wait_until((live.folder / "saving").exists, "saving")
            task.cancel()
            await asyncio.wait([task])

        run_async(cancel())
        after = live.run("x")
        assert (after.output, after.notice) == ("1\n", ""), after


def test_a_block_that_is_stopped_during_a_restore_does_not_run(live: LiveSession) -> None:
    live.run_ok(
        "import os, threading, time\nclass Slow:\n"
        "    def __setstate__(self, state):\n        open('loading', 'w')\n"
        "        while not os.path.exists('loaded'): time.sleep(0.01)\n"
        "def end():\n    while not os.path.exists('go'): time.sleep(0.01)\n    os._exit(5)\n"
        "x = 1; slow = Slow(); slow.y = 2"
    )
    live.run("threading.Thread(target=end).start()")
    live.run_ok("1")  # the automatic checkpoint of the block before it exists now
    (live.folder / "go").touch()
    run_async(wait_until((live.folder / "loading").exists, "loading"))

    async def stop() -> CodeResult:
        token = CancellationToken()
        block = CodeBlock("open('ran', 'w')", "python")
        run = asyncio.ensure_future(live.executor.execute_code_blocks([block], token))
        for _ in range(20):
            await asyncio.sleep(0)
        token.cancel()
        (live.folder / "loaded").touch()
        return await run

    assert run_async(stop()).outcome == "cancelled"
    assert live.run_ok("print(x, os.path.exists('ran'))") == "1 False"
