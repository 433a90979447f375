"""Callers on different loops are independent."""

import asyncio
import contextlib
import gc
import os
import threading
import time
from pathlib import Path

import pytest

from cellblock import (
    CodeBlock,
    CodeResult,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
)
from cellblock.errors import ExecutorStopped
from cellblock.executors.command_line.base import CommandLineExecutor
from cellblock.executors.session.base import SessionExecutor
from cellblock.testing.liveness import wait_until
from tests.executors.session.live_session import skip_without_sandbox

KINDS = {"sandbox": SandboxCommandLineCodeExecutor, "session": SandboxSessionCodeExecutor}


def executor(kind: str, folder: Path) -> CommandLineExecutor | SessionExecutor:
    skip_without_sandbox()
    return KINDS[kind](work_dir=folder)


async def run(one: CommandLineExecutor | SessionExecutor, code: str) -> CodeResult:
    return await one.execute_code_blocks([CodeBlock(code, "python")])


async def test_a_busy_loop_gets_its_result_later(tmp_path: Path) -> None:
    async with executor("sandbox", tmp_path) as one:
        code = "print('x' * 500_000)\nopen('printed', 'w').close()"
        running = asyncio.create_task(run(one, code))
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251 - callers do this
        assert len((await running).output) == 500_001
        assert (tmp_path / "printed").exists()


def test_a_busy_loop_whose_block_prints_a_lot_does_not_delay_other_loops(tmp_path: Path) -> None:
    one = executor("sandbox", tmp_path)
    chatty = (
        "import os, time\nfor _ in range(5000): os.write(1, b'x\\n'); os.write(2, b'y\\n')\n"
        "open('printed', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)"
    )

    def other() -> None:
        # Until much has been printed that the busy loop has not read.
        asyncio.run(wait_until((tmp_path / "printed").exists, "the block prints"))
        assert asyncio.run(run(one, "print('mine')")).output == "mine\n"
        (tmp_path / "go").touch()

    async def main() -> None:
        running = asyncio.create_task(run(one, chatty))
        await asyncio.sleep(0)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()  # blocks this loop
        assert len((await running).output) == 20_000

    asyncio.run(one.start())
    asyncio.run(main())
    asyncio.run(one.stop())


# asyncio warns about the lost task.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_task_kept", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_loop_was_closed_during_a_block_other_loops_can_use_the_executor(
    kind: str, is_task_kept: bool, tmp_path: Path
) -> None:
    one = executor(kind, tmp_path)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(one.start())
    code = "import time; open('here', 'w').close(); time.sleep(60)"
    task = loop.create_task(run(one, code))
    loop.run_until_complete(wait_until((tmp_path / "here").exists, "the block runs"))
    loop.close()
    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue] - intended here
    if not is_task_kept:
        with contextlib.suppress(AttributeError):  # asyncio's, from 3.13 on
            task.get_coro().close()
        del task
        gc.collect()

    for word in ("done", "again"):
        assert asyncio.run(run(one, f"print({word!r})")).output == f"{word}\n"
    asyncio.run(one.stop())


def test_many_loops_in_sequence_leave_no_open_descriptors(tmp_path: Path) -> None:
    one = executor("sandbox", tmp_path)
    counts = list[int]()
    for _ in range(10):
        assert asyncio.run(run(one, "print('hi')")).output == "hi\n"
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0]
    asyncio.run(one.stop())


def test_several_loops_can_use_a_session_at_once(tmp_path: Path) -> None:
    one, failures = executor("session", tmp_path), list[object]()

    async def count_up() -> None:
        try:
            for _ in range(15):
                assert (await run(one, "n = globals().get('n', 0) + 1")).outcome == "ok"
        except BaseException as error:
            failures.append(error)

    async def twice() -> None:
        await asyncio.gather(count_up(), count_up())

    threads = [threading.Thread(target=asyncio.run, args=(twice(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert asyncio.run(run(one, "n")).output == "90\n"
    asyncio.run(one.stop())


@pytest.mark.parametrize("kind", KINDS)
async def test_a_block_that_starts_while_another_thread_stops_the_executor_raises(
    kind: str, tmp_path: Path
) -> None:
    async with executor(kind, tmp_path) as one:
        connection, one.place.connection = one.place.connection, None  # as `stop` does first
        with pytest.raises(ExecutorStopped, match="stopped"):
            await run(one, "print('hi')")
        one.place.connection = connection


def test_a_cancelled_start_does_not_stop_what_another_one_has_started() -> None:
    async def main(executor: SandboxSessionCodeExecutor) -> None:
        first, second = (asyncio.ensure_future(executor.start()) for _ in range(2))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([first, second])
        assert "not started" not in repr(executor)
        await executor.stop()

    asyncio.run(main(SandboxSessionCodeExecutor()))
