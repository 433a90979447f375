"""A stop lets native code return and loses nothing; a second stop kills the block at once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from cellblock import CancellationToken, CodeBlock, SandboxSessionServer, SessionCodeResult
from cellblock.events import Event, Output, Started
from cellblock.results import ResultBuilder
from tests.executors.session.live_session import RESTORED, LiveSession, open_session, run_async

BEGIN = "print('begun', flush=True)"
# Takes some seconds, and no signal ends it.
LONG_CALL = (
    f"import hashlib\ninner = 2\n{BEGIN}\nhashlib.pbkdf2_hmac('sha256', b'', b'', 3_000_000)\n"
    "inner = 3"
)
# Locks a mutex again and again. `pthread_mutex_lock` does not return then, whatever signals arrive.
ENDLESS_CALL = (
    "import ctypes\nlock = ctypes.CDLL(None).pthread_mutex_lock\nmutex = (ctypes.c_char * 64)()\n"
    f"inner = 2\nwhile True:\n    try: {BEGIN}; lock(mutex); lock(mutex)\n"
    "    except KeyboardInterrupt: pass"
)
ENDLESS_LOOP = (
    f"import time\ninner = 2\nwhile True:\n    try: {BEGIN}; time.sleep(600)\n"
    "    except KeyboardInterrupt: pass"
)


def run_and_stop(live: LiveSession, code: str, stops: int = 1) -> SessionCodeResult:
    """Run `code`, and stop it `stops` times when it has printed its first line."""

    async def run() -> SessionCodeResult:
        token, builder = CancellationToken(), ResultBuilder()
        async with aclosing(
            live.executor.execute_stream([CodeBlock(code, "python")], token)
        ) as events:
            async for event in events:
                builder.add_event(event)
                if isinstance(event, Output) and not token.is_cancelled():
                    for _ in range(stops):
                        token.cancel()
        return builder.session_result()

    return run_async(run())


def variables(live: LiveSession) -> str:
    return live.run_ok("print(outer, globals().get('inner'))")


def check_stop(
    server: SandboxSessionServer, code: str, stops: int = 1, timeout: float | None = None
) -> SessionCodeResult:
    """Stop `code`, and check that the session has its variables of before, or the latest ones."""
    with open_session(server, timeout=timeout) as live:
        live.run_ok("outer = 1")
        ended = run_and_stop(live, code, stops)
        assert (ended.exit_code, ended.outcome) == (125, "cancelled"), ended
        assert ended.notice == (RESTORED if ended.session_restored else ""), ended
        assert ended.output.startswith("begun"), ended
        assert variables(live) == ("1 None" if ended.session_restored else "1 2")
        return ended


def test_a_stop_lets_a_native_call_return_and_keeps_all_variables(
    shared: SandboxSessionServer,
) -> None:
    assert not check_stop(shared, LONG_CALL, timeout=120).session_restored


def test_a_stop_ends_a_program_that_the_block_waits_for(shared: SandboxSessionServer) -> None:
    code = "import os\ninner = 2\nos.system('echo begun; sleep 600')\nwhile True: pass"
    assert not check_stop(shared, code).session_restored


@pytest.mark.parametrize("code", [ENDLESS_CALL, ENDLESS_LOOP], ids=["native", "loop"])
def test_a_second_stop_kills_a_block_without_a_time_limit(
    code: str, shared: SandboxSessionServer
) -> None:
    assert check_stop(shared, code, stops=2).session_restored


def test_the_time_limit_kills_a_stopped_block(shared: SandboxSessionServer) -> None:
    assert check_stop(shared, ENDLESS_CALL, timeout=3).session_restored


@pytest.mark.parametrize(
    "start",
    [
        f"try: {BEGIN}; signal.pause()\nexcept KeyboardInterrupt: pass",
        f"signal.signal(signal.SIGINT, signal.SIG_IGN)\n{BEGIN}",
    ],
    ids=["goes on", "ignores interrupts"],
)
def test_limits_hold_while_a_stopped_block_goes_on(
    start: str, strict_server: SandboxSessionServer
) -> None:
    write = "with open('big', 'wb') as file:\n    while True: file.write(bytes(1 << 20))"
    assert check_stop(strict_server, f"import signal\n{start}\n{write}").session_restored


def test_a_stop_before_the_block_begins_is_not_lost(shared: SandboxSessionServer) -> None:
    async def run(live: LiveSession) -> list[Event]:
        token, found = CancellationToken(), list[Event]()
        block = CodeBlock("while True: pass", "python")
        async with aclosing(live.executor.execute_stream([block], token)) as events:
            async for event in events:
                found.append(event)
                if isinstance(event, Started):
                    token.cancel()
        return found

    with open_session(shared, timeout=None) as live:
        live.run_ok("outer = 1")
        for _ in range(5):
            run_async(run(live))
        assert variables(live) == "1 None"


async def _cancel_task(live: LiveSession, code: str) -> None:
    started = asyncio.Event()

    async def run() -> None:
        async with aclosing(live.executor.execute_stream([CodeBlock(code, "python")])) as events:
            async for event in events:
                if isinstance(event, Output):
                    started.set()

    task = asyncio.create_task(run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_task_waits_only_for_a_block_that_ends_soon(
    shared: SandboxSessionServer,
) -> None:
    with open_session(shared, timeout=None) as live:
        live.run_ok("outer = 1")
        run_async(_cancel_task(live, LONG_CALL.replace("3_000_000", "1_000_000")))
        assert variables(live) == "1 2"
        live.run_ok("del inner")
        run_async(_cancel_task(live, ENDLESS_CALL))
        assert variables(live) == "1 None"


def test_stopping_the_executor_ends_a_stopped_block(shared: SandboxSessionServer) -> None:
    async def check(live: LiveSession) -> None:
        token, started = CancellationToken(), asyncio.Event()

        async def run() -> None:
            code = CodeBlock(ENDLESS_CALL, "python")
            async with aclosing(live.executor.execute_stream([code], token)) as events:
                async for event in events:
                    if isinstance(event, Output):
                        token.cancel()
                        started.set()

        task = asyncio.create_task(run())
        await started.wait()
        await live.executor.stop()
        await asyncio.wait([task])
        assert "stopped" in str(task.exception())

    with open_session(shared, timeout=None) as live:
        run_async(check(live))
