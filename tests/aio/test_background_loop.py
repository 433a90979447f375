"""The engine: work of any loop or thread on one loop, with clean-up waited for and streams held back."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from cellblock.aio.background_loop import engine


class Work:
    """A piece of work that waits until it is cancelled, and takes its time to clean up."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.cleaned = False

    async def run(self) -> None:
        try:
            self.started.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            self.cleaned = True


def test_work_of_every_loop_and_thread_runs_in_one_thread() -> None:
    async def name() -> str:
        return threading.current_thread().name

    async def main() -> str:
        return await engine().call(name())

    assert [asyncio.run(main()), asyncio.run(main()), engine().wait(name())] == ["cellblock"] * 3


def test_result_and_error_come_back() -> None:
    async def fail() -> None:
        raise KeyError("mine")

    async def main() -> None:
        await engine().call(fail())

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(main())
    with pytest.raises(KeyError, match="mine"):
        engine().wait(fail())


def test_work_that_is_cancelled_before_it_begins_ends() -> None:
    async def main() -> None:
        work = Work()
        engine().loop.call_soon_threadsafe(
            time.sleep, 0.2
        )  # so that start and cancellation are seen at one time
        task = asyncio.create_task(engine().call(work.run()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        assert not work.started.is_set()

    asyncio.run(main())


def test_cancel_waits_for_clean_up_even_when_cancelled_again() -> None:
    async def main() -> None:
        work = Work()
        task = asyncio.create_task(engine().call(work.run()))
        await asyncio.to_thread(work.started.wait)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.005)
        assert not task.done()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.cleaned

    asyncio.run(main())


def test_work_that_was_cancelled_from_inside_says_so() -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        await engine().call(give_up())

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def test_an_interrupt_that_comes_just_as_the_work_is_done_does_not_wait_for_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Told:
        """A lock in whose second taking, once it is taken, the interrupt comes."""

        def __init__(self) -> None:
            self.lock, self.takings, self.release = lock(), 0, lambda: self.lock.release()

        def acquire(self) -> None:
            self.lock.acquire()
            self.takings += 1
            if self.takings == 2:
                raise KeyboardInterrupt

    async def nothing() -> None: ...

    lock = threading.Lock
    engine()
    monkeypatch.setattr(threading, "Lock", Told)
    with pytest.raises(KeyboardInterrupt):
        engine().wait(nothing())


def test_threads_whose_work_ends_at_one_time_are_told_together_when_all_of_it_is_done() -> None:
    async def main() -> list[bool]:
        told = [threading.Lock() for _ in range(2)]
        for one in told:
            one.acquire()
            engine()._tell(one)
        before = any(not one.locked() for one in told)
        await asyncio.sleep(0)
        return [before, *(one.locked() for one in told)]

    assert engine().wait(main()) == [False, False, False]


def test_waiting_inside_the_engine_is_refused_instead_of_hanging() -> None:
    async def nothing() -> None: ...

    async def callback() -> None:
        engine().wait(nothing())

    with pytest.raises(RuntimeError, match="cannot be used from inside"):
        engine().wait(callback())


def test_call_on_the_engine_s_own_loop_is_a_plain_await() -> None:
    async def inner() -> int:
        return 3

    async def outer() -> int:
        return await engine().call(inner())

    assert engine().wait(outer()) == 3


class Numbers:
    """A generator that counts how far it ran, and whether it was closed."""

    def __init__(self, count: int) -> None:
        self.count, self.made, self.closed = count, 0, False

    async def run(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                self.made = number + 1
                yield number
        finally:
            await asyncio.sleep(0.01)
            self.closed = True


def test_stream_gives_all_items_in_order_to_loops_and_threads() -> None:
    async def main() -> list[int]:
        return [item async for item in engine().stream(Numbers(5000).run())]

    assert asyncio.run(main()) == list(range(5000))
    assert list(engine().iterate(Numbers(5000).run())) == list(range(5000))


def test_slow_reader_holds_the_producer_back() -> None:
    numbers = Numbers(100_000)
    items = engine().iterate(numbers.run())
    assert next(items) == 0
    engine().wait(asyncio.sleep(0.1))
    assert numbers.made < 5000
    assert sum(1 for _ in items) == 99_999


def test_reader_that_stops_early_closes_the_generator_and_waits_for_it() -> None:
    async def main() -> None:
        numbers = Numbers(100_000)
        stream = engine().stream(numbers.run())
        assert await anext(stream) == 0
        await stream.aclose()
        assert numbers.closed

    asyncio.run(main())
    numbers = Numbers(100_000)
    for _ in engine().iterate(numbers.run()):
        break
    assert numbers.closed


def test_error_of_a_generator_comes_after_its_items() -> None:
    async def items() -> AsyncGenerator[int, None]:
        yield 1
        raise KeyError("mine")

    found: list[int] = []
    with pytest.raises(KeyError, match="mine"):
        found.extend(engine().iterate(items()))
    assert found == [1]


def test_stream_that_nobody_reads_runs_nothing() -> None:
    numbers = Numbers(10)
    engine().iterate(numbers.run())
    assert numbers.made == 0


IN_A_CHILD = """
import os, sys
from cellblock import CodeBlock, BackendLost
from cellblock.aio.background_loop import engine
from cellblock.sync import SandboxCommandLineCodeExecutor

hi = [CodeBlock("print('hi')", "python")]
with SandboxCommandLineCodeExecutor(work_dir=sys.argv[1]) as executor:
    executor.execute_code_blocks(hi)
    before = engine()
    child = os.fork()
    if child == 0:
        try:
            executor.execute_code_blocks(hi)
        except BackendLost as error:
            print(error)
        with SandboxCommandLineCodeExecutor() as own:
            print(engine() is not before, own.execute_code_blocks(hi).output)
        sys.stdout.flush()
        os._exit(0)
    print(os.waitpid(child, 0)[1], executor.execute_code_blocks(hi).output)
"""


def test_forked_child_has_its_own_engine_and_not_its_parent_s_executor(tmp_path: Path) -> None:
    import subprocess

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", IN_A_CHILD, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=15, env=environment)
    said = "This executor was started in another process: use one that is made in this one.\n"
    assert (done.stdout, done.stderr) == (f"{said}True hi\n\n0 hi\n\n", "")
