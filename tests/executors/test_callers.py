"""A caller's own loop: blocks run there without the engine, and what a loop does or suffers is nobody else's matter."""

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from cellblock import (
    CodeBlock,
    CodeResult,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
)
from cellblock.aio.background_loop import engine
from cellblock.backends.socket_reader import Ear
from cellblock.errors import BackendError, BackendLost
from cellblock.executors.command_line.base import CommandLineExecutor
from tests.executors.session.live_session import need_sandbox

KINDS = {"sandbox": SandboxCommandLineCodeExecutor, "session": SandboxSessionCodeExecutor}


def executor(kind: str, folder: Path) -> CommandLineExecutor:
    need_sandbox()
    return KINDS[kind](work_dir=folder)


async def run(one: CommandLineExecutor, code: str) -> CodeResult:
    return await one.execute_code_blocks([CodeBlock(code, "python")])


@contextlib.contextmanager
def engine_busy() -> Generator[threading.Event]:
    """Have the engine do nothing until the event is set, or at the end."""
    let_go = threading.Event()
    engine().loop.call_soon_threadsafe(let_go.wait, 30)
    try:
        yield let_go
    finally:
        let_go.set()


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_need_no_engine_once_it_has_started(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with executor(kind, tmp_path) as one:
            with engine_busy():
                for number in range(3):
                    assert (
                        await asyncio.wait_for(run(one, f"print({number})"), 10)
                    ).output == f"{number}\n"

    asyncio.run(main())


def test_a_large_folder_is_looked_through_by_the_engine_and_not_in_the_callers_loop(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with executor("sandbox", tmp_path) as one:
            await run(one, "for n in range(300): open(f'{n}.txt', 'w').close()")
            with engine_busy() as let_go:
                running = asyncio.create_task(run(one, "print('done')"))
                await asyncio.wait([running], timeout=1)
                assert not running.done()
                let_go.set()
                assert (await running).output == "done\n"

    asyncio.run(main())


def test_a_loop_that_is_busy_with_something_else_gets_its_result_later(tmp_path: Path) -> None:
    async def main() -> None:
        async with executor("sandbox", tmp_path) as one:
            running = asyncio.create_task(run(one, "print('x' * 500_000)"))
            await asyncio.sleep(0.05)
            time.sleep(1)  # noqa: ASYNC251 - which is what callers do
            assert len((await running).output) == 500_001

    asyncio.run(main())


def test_a_loop_that_is_busy_while_its_block_prints_much_holds_up_no_other(tmp_path: Path) -> None:
    one = executor("sandbox", tmp_path)
    chatty = "import os, time\nfor _ in range(5000): os.write(1, b'x\\n'); os.write(2, b'y\\n')\ntime.sleep(1)"

    def other() -> None:
        time.sleep(1)  # until much has been printed that the busy loop does not take
        assert asyncio.run(run(one, "print('mine')")).output == "mine\n"

    async def main() -> None:
        running = asyncio.create_task(run(one, chatty))
        await asyncio.sleep(0.1)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(15)  # and with it this loop waits
        assert not thread.is_alive()
        assert len((await running).output) == 20_000

    asyncio.run(one.start())
    asyncio.run(main())
    asyncio.run(one.stop())


def test_of_two_loops_that_begin_at_once_the_one_that_ends_takes_nothing_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, listen = executor("sandbox", tmp_path), Ear.listen

    def slow_to_listen(ear: Ear, loop: asyncio.AbstractEventLoop) -> bool:
        time.sleep(0.2)
        return listen(ear, loop)

    async def main() -> None:
        assert (
            await asyncio.wait_for(run(one, "import time; time.sleep(1); print('long')"), 10)
        ).output == "long\n"

    def other() -> None:
        time.sleep(0.1)  # the first is about to listen
        asyncio.run(run(one, "print('short')"))

    asyncio.run(one.start())
    monkeypatch.setattr(Ear, "listen", slow_to_listen)
    thread = threading.Thread(target=other)
    thread.start()
    asyncio.run(main())
    thread.join()
    asyncio.run(one.stop())


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # asyncio's, of the task that is lost
@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_that_is_closed_in_the_middle_of_a_block_leaves_the_executor_to_others(
    kind: str, tmp_path: Path
) -> None:
    one = executor(kind, tmp_path)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(one.start())
    task = loop.create_task(run(one, "import time; time.sleep(60)"))
    loop.run_until_complete(asyncio.sleep(0.3))
    loop.close()
    with contextlib.suppress(RuntimeError):
        task.get_coro().close()
    del task
    gc.collect()

    async def main() -> None:
        for _ in range(100):  # while the block of before is being ended, a session is busy
            with contextlib.suppress(BackendError):
                assert (await run(one, "print('done')")).output == "done\n"
                break
            await asyncio.sleep(0.05)
        assert (await run(one, "print('again')")).output == "again\n"
        await one.stop()

    asyncio.run(asyncio.wait_for(main(), 15))


def test_many_loops_after_each_other_leave_nothing_open(tmp_path: Path) -> None:
    one = executor("sandbox", tmp_path)
    counts = list[int]()
    for _ in range(10):
        assert asyncio.run(run(one, "print('hi')")).output == "hi\n"
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0]
    asyncio.run(one.stop())


def test_a_session_is_used_from_several_loops_at_once(tmp_path: Path) -> None:
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
def test_a_block_that_begins_while_another_thread_stops_the_executor_is_told_so(
    kind: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with executor(kind, tmp_path) as one:
            connection, one._connection = one._connection, None  # as `stop` does first
            with pytest.raises(BackendLost, match="stopped"):
                await run(one, "print('hi')")
            one._connection = connection

    asyncio.run(main())
