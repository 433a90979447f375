"""Calls on the background loop from any loop or thread: results, clean-up and streams."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from cellblock.aio.background_loop import background_loop


class Work:
    """A coroutine that waits until it is cancelled, and then cleans up slowly."""

    def __init__(self) -> None:
        self.started, self.may_end = threading.Event(), threading.Event()
        self.cleaned = False

    async def run(self) -> None:
        try:
            self.started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(self.may_end.wait)
            self.cleaned = True


def test_work_of_every_loop_and_thread_runs_in_one_thread() -> None:
    async def name() -> str:
        return threading.current_thread().name

    async def main() -> str:
        return await background_loop().call(name())

    assert [asyncio.run(main()), asyncio.run(main()), background_loop().run(name())] == [
        "cellblock"
    ] * 3


def test_result_and_error_reach_the_caller() -> None:
    async def fail() -> None:
        raise KeyError("mine")

    async def main() -> None:
        await background_loop().call(fail())

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(main())
    with pytest.raises(KeyError, match="mine"):
        background_loop().run(fail())


async def test_work_cancelled_before_it_starts_ends() -> None:
    work = Work()
    # Block the loop, so that it sees the start and the cancellation at the same time.
    unblock = threading.Event()
    background_loop().loop.call_soon_threadsafe(unblock.wait)
    task = asyncio.create_task(background_loop().call(work.run()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    unblock.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not work.started.is_set()


async def test_cancellation_waits_for_clean_up_even_when_repeated() -> None:
    work = Work()
    task = asyncio.create_task(background_loop().call(work.run()))
    await asyncio.to_thread(work.started.wait)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0.005)
    assert not task.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cleaned


def test_work_that_cancels_itself_raises_cancelled_error() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        await background_loop().call(give_up())

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_interrupt_at_the_end_of_the_work_does_not_wait_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class InterruptedLock:
        """A lock whose second acquisition succeeds and is then interrupted."""

        def __init__(self) -> None:
            self.lock, self.acquisitions, self.release = lock(), 0, lambda: self.lock.release()

        def acquire(self) -> None:
            self.lock.acquire()
            self.acquisitions += 1
            if self.acquisitions == 2:
                raise KeyboardInterrupt

    async def nothing() -> None: ...

    lock = threading.Lock
    background_loop()
    monkeypatch.setattr(threading, "Lock", InterruptedLock)
    with pytest.raises(KeyboardInterrupt):
        background_loop().run(nothing())


def test_threads_whose_work_ends_together_are_released_together() -> None:
    async def main() -> list[bool]:
        waiters = [threading.Lock() for _ in range(2)]
        for waiter in waiters:
            waiter.acquire()
            background_loop()._release_soon(waiter)
        before = any(not waiter.locked() for waiter in waiters)
        await asyncio.sleep(0)
        return [before, *(waiter.locked() for waiter in waiters)]

    assert background_loop().run(main()) == [False, False, False]


def test_blocking_call_on_the_background_loop_is_refused_instead_of_hanging() -> None:
    async def nothing() -> None: ...

    async def callback() -> None:
        background_loop().run(nothing())

    with pytest.raises(RuntimeError, match="cannot be used from inside"):
        background_loop().run(callback())


def test_call_from_the_background_loop_is_a_plain_await() -> None:
    async def inner() -> int:
        return 3

    async def outer() -> int:
        return await background_loop().call(inner())

    assert background_loop().run(outer()) == 3


class Numbers:
    """A generator that records how many items it produced and whether it was closed."""

    def __init__(self, count: int) -> None:
        self.count, self.produced, self.closed = count, 0, False

    async def run(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                self.produced = number + 1
                yield number
        finally:
            await asyncio.sleep(0.01)
            self.closed = True


def test_stream_yields_all_items_in_order_to_loops_and_threads() -> None:
    async def main() -> list[int]:
        return [item async for item in background_loop().stream(Numbers(5000).run())]

    assert asyncio.run(main()) == list(range(5000))
    assert list(background_loop().iterate(Numbers(5000).run())) == list(range(5000))


def test_slow_reader_pauses_the_producer() -> None:
    numbers = Numbers(100_000)
    items = background_loop().iterate(numbers.run())
    assert next(items) == 0
    background_loop().run(asyncio.sleep(0.05))
    assert numbers.produced < 5000
    assert sum(1 for _ in items) == 99_999


def test_reader_that_stops_early_closes_the_generator_and_waits_for_it() -> None:
    async def main() -> None:
        numbers = Numbers(100_000)
        stream = background_loop().stream(numbers.run())
        assert await anext(stream) == 0
        await stream.aclose()
        assert numbers.closed

    asyncio.run(main())
    numbers = Numbers(100_000)
    for _ in background_loop().iterate(numbers.run()):
        break
    assert numbers.closed


def test_error_of_a_generator_is_raised_after_its_items() -> None:
    async def items() -> AsyncGenerator[int, None]:
        yield 1
        raise KeyError("mine")

    found: list[int] = []
    with pytest.raises(KeyError, match="mine"):
        found.extend(background_loop().iterate(items()))
    assert found == [1]


async def test_a_stream_ends_after_its_clean_up_even_when_it_is_cancelled_repeatedly() -> None:
    work = Work()

    async def wait() -> AsyncGenerator[int]:
        await work.run()
        yield 1

    async def read() -> None:
        async for _ in background_loop().stream(wait()):
            pass

    task = asyncio.create_task(read())
    await asyncio.to_thread(work.started.wait)
    for _ in range(3):  # as AnyIO's cancel scopes do
        task.cancel()
        await asyncio.sleep(0.005)
    assert not task.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.cleaned


def test_unread_stream_does_not_start() -> None:
    numbers = Numbers(10)
    background_loop().iterate(numbers.run())
    assert numbers.produced == 0


USE_IN_CHILD = """
import os, sys
from cellblock import CodeBlock, BackendLost
from cellblock.aio.background_loop import background_loop
from cellblock.sync import SandboxCommandLineCodeExecutor

hi = [CodeBlock("print('hi')", "python")]
with SandboxCommandLineCodeExecutor(work_dir=sys.argv[1]) as executor:
    executor.execute_code_blocks(hi)
    before = background_loop()
    child = os.fork()
    if child == 0:
        try:
            executor.execute_code_blocks(hi)
        except BackendLost as error:
            print(error)
        with SandboxCommandLineCodeExecutor() as own:
            print(background_loop() is not before, own.execute_code_blocks(hi).output)
        sys.stdout.flush()
        os._exit(0)
    print(os.waitpid(child, 0)[1], executor.execute_code_blocks(hi).output)
"""


def test_forked_child_has_its_own_loop_and_cannot_use_the_parent_s_executor(tmp_path: Path) -> None:
    import subprocess

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        USE_IN_CHILD,
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    message = "This executor was started in another process. Create one in this process.\n"
    assert (done.stdout, done.stderr) == (f"{message}True hi\n\n0 hi\n\n", "")


def test_a_stream_whose_reader_is_cancelled_again_and_again_is_closed() -> None:
    open_streams = set[int]()

    async def items(number: int) -> AsyncGenerator[int, None]:
        open_streams.add(number)
        try:
            yield number
            await asyncio.Event().wait()
        finally:
            open_streams.discard(number)

    async def read(number: int, began: asyncio.Event) -> None:
        async for _ in background_loop().stream(items(number)):
            began.set()

    async def main() -> None:
        for number in range(100):
            began = asyncio.Event()
            task = asyncio.create_task(read(number, began))
            await began.wait()
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)

    asyncio.run(main())
    assert open_streams == set()
