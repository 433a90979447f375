"""A thread that calls drives its block itself: results, clean-up and interrupts as on the engine, without its turns."""

import asyncio
import concurrent.futures
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cellblock import CancellationToken, CodeBlock, SandboxCommandLineCodeExecutor, sync
from cellblock.aio.background_loop import engine
from cellblock.aio.inline_loop import Driver, can_drive, drive
from cellblock.backends.socket_reader import Ear
from cellblock.errors import BackendError, BackendLost
from tests.executors.session.live_session import need_sandbox
from tests.executors.test_callers import engine_busy

T = TypeVar("T")

FACES: dict[str, type[sync.SyncCodeExecutor]] = {
    "sandbox": sync.SandboxCommandLineCodeExecutor,
    "session": sync.SandboxSessionCodeExecutor,
}


@pytest.fixture(params=FACES)
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.SyncCodeExecutor]:
    need_sandbox()
    with FACES[request.param](work_dir=tmp_path) as executor:
        yield executor


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call `function` in a new thread: in the main one a time limit of the tests may have set a handler."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def output_of(executor: sync.SyncCodeExecutor, code: str) -> str:
    return executor.execute_code_blocks([CodeBlock(code, "python")]).output


# the loop


def test_it_gives_what_its_work_gives() -> None:
    async def three() -> int:
        await asyncio.sleep(0)
        return 3

    async def fail() -> None:
        raise KeyError("mine")

    assert in_thread(drive, three) == 3
    with pytest.raises(KeyError, match="mine"):
        in_thread(drive, fail)


def test_futures_timers_readers_and_other_threads_wake_it() -> None:
    async def work() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        readable, writable = os.pipe()
        arrived = loop.create_future()
        loop.add_reader(
            readable, lambda: arrived.done() or arrived.set_result(os.read(readable, 9).decode())
        )
        loop.call_later(0.01, os.write, writable, b"piped")
        loop.call_later(0.005, seen.append, "never").cancel()
        seen.append(await arrived)
        loop.remove_reader(readable)
        told = loop.create_future()
        threading.Timer(0.01, loop.call_soon_threadsafe, (told.set_result, "told")).start()
        seen.append(await told)
        for descriptor in (readable, writable):
            os.close(descriptor)
        return seen

    assert in_thread(drive, work) == ["piped", "told"]


def test_when_the_call_is_over_others_are_told_so_and_nothing_is_open() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    before = len(os.listdir("/proc/self/fd"))
    over = in_thread(drive, loop)
    assert isinstance(over, Driver)
    assert over.is_closed()
    with pytest.raises(RuntimeError):
        over.call_soon_threadsafe(print)
    assert len(os.listdir("/proc/self/fd")) == before


def test_it_is_not_for_a_thread_with_a_loop_nor_where_a_handler_could_raise() -> None:
    async def ask() -> bool:
        return can_drive()

    def handler(_number: int, _frame: object) -> None:
        raise TimeoutError

    assert in_thread(can_drive)
    assert not in_thread(asyncio.run, ask())
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        assert not can_drive()
        assert in_thread(can_drive)
    finally:
        signal.signal(signal.SIGUSR1, before)


# blocks


def test_blocks_need_no_engine_once_it_has_started(executor: sync.SyncCodeExecutor) -> None:
    with engine_busy():
        assert [in_thread(output_of, executor, f"print({number})") for number in range(3)] == [
            "0\n",
            "1\n",
            "2\n",
        ]


def test_threads_after_each_other_leave_nothing_open(executor: sync.SyncCodeExecutor) -> None:
    counts = list[int]()
    for _ in range(10):
        assert in_thread(output_of, executor, "print('hi')") == "hi\n"
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0]


@pytest.mark.parametrize("make", [Driver, asyncio.new_event_loop], ids=["driver", "loop"])
def test_a_loop_that_ends_before_it_was_told_to_let_go_leaves_nothing_open(
    make: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    ours, theirs = socket.socketpair()
    ear = Ear(ours, lambda: None)
    for _ in range(5):
        over, next_one = make(), make()
        assert ear.listen(over)
        assert ear.listen(next_one)  # which asks the other to let go, in its next turn
        over.close()
        next_one.close()
    ear.end()
    for one in (ours, theirs):
        one.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_threads_at_once_and_a_loop_each_get_their_own(executor: sync.SyncCodeExecutor) -> None:
    inner = executor._executor

    async def on_a_loop(number: int) -> str:
        return (await inner.execute_code_blocks([CodeBlock(f"print({number})", "python")])).output

    def several(caller: int) -> list[tuple[str, int]]:
        numbers = range(100 * caller, 100 * caller + 12)
        if caller == 0:
            return [(asyncio.run(on_a_loop(number)), number) for number in numbers]
        return [(output_of(executor, f"print({number})"), number) for number in numbers]

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        found = [pair for pairs in pool.map(several, range(5)) for pair in pairs]
    assert [text for text, _ in found] == [f"{number}\n" for _, number in found]


def test_a_token_of_another_thread_cancels(executor: sync.SyncCodeExecutor, tmp_path: Path) -> None:
    token = CancellationToken()

    def run() -> tuple[int, str]:
        block = CodeBlock(
            "import time; print('so far', flush=True); open('begun', 'w').close(); time.sleep(60)",
            "python",
        )
        result = executor.execute_code_blocks([block], token)
        return result.exit_code, result.output.split("\n")[0]

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        token.cancel()
        assert running.result() == (125, "so far")
    assert in_thread(output_of, executor, "print('hi')") == "hi\n"


def test_who_waits_is_told_when_another_thread_stops_the_executor(
    executor: sync.SyncCodeExecutor, tmp_path: Path
) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            output_of, executor, "import time; open('begun', 'w').close(); time.sleep(60)"
        )
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        executor.stop()
        with pytest.raises(BackendError):
            running.result()
    assert in_thread(output_of, executor, "print('hi')") == "hi\n"


def test_a_server_that_died_while_nobody_called_is_told_of(tmp_path: Path) -> None:
    need_sandbox()
    with sync.SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        in_thread(output_of, executor, "print('hi')")
        inner = executor._executor
        assert isinstance(inner, SandboxCommandLineCodeExecutor)
        assert inner._connection is not None
        os.kill(inner._connection.pid, signal.SIGKILL)
        with pytest.raises(BackendLost):
            in_thread(output_of, executor, "print('hi')")
        assert list(tmp_path.iterdir()) == []
        executor.restart()
        assert in_thread(output_of, executor, "print('hi')") == "hi\n"


def test_within_a_running_loop_the_engine_does_it(executor: sync.SyncCodeExecutor) -> None:
    async def main() -> str:
        return output_of(executor, "print('hi')")

    assert asyncio.run(main()) == "hi\n"
    assert engine().loop.is_running()


# interrupts, in a main thread without any handler

PROGRAM = """
import os, signal, sys, threading, time
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor

folder = sys.argv[1]
LONG = "open('begun', 'w').close(); import time; time.sleep(60)"

def output_of(code):
    return executor.execute_code_blocks([CodeBlock(code, "python")]).output.strip()

def interrupt(after=0.0):
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGINT)

def when_begun(*steps):
    def wait():
        while not os.path.exists(f"{folder}/begun"):
            time.sleep(0.01)
        for step in steps:
            step()
            time.sleep(0.3)
    threading.Thread(target=wait).start()

with SandboxCommandLineCodeExecutor(work_dir=folder) as executor:
    server = executor._executor._connection.pid
    @
    print(output_of("print('goes on')"), [name for name in os.listdir(folder) if name != "begun"])
"""
INTERRUPTED = {
    "once": """
    when_begun(interrupt)
    try:
        output_of(LONG)
    except KeyboardInterrupt:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        print("interrupted")
""",
    "twice, with a server that does not answer": """
    when_begun(lambda: os.kill(server, signal.SIGSTOP), interrupt, interrupt)
    try:
        output_of(LONG)
    except KeyboardInterrupt:
        os.kill(server, signal.SIGCONT)
        print("interrupted")
""",
    "by a handler that raises": """
    def on_alarm(number, frame):
        raise TimeoutError("interrupted")
    signal.signal(signal.SIGALRM, on_alarm)
    when_begun(lambda: os.kill(os.getpid(), signal.SIGALRM))
    try:
        output_of(LONG)
    except TimeoutError as error:
        print(error)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
""",
    "at any moment": """
    count = 0
    for number in range(80):
        interrupting = threading.Thread(target=interrupt, args=(number * 5e-5,))
        try:
            interrupting.start()
            assert output_of(f"print({number})") == str(number)
            interrupting.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            count += 1
            interrupting.join()
    print("interrupted" if count == 80 else count)
""",
}


@pytest.mark.parametrize("how", INTERRUPTED)
def test_an_interrupt_ends_the_block_and_goes_on_up(tmp_path: Path, how: str) -> None:
    need_sandbox()
    program = PROGRAM.replace("    @\n", INTERRUPTED[how].lstrip("\n"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(
        argv, capture_output=True, text=True, env=environment, timeout=15, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\ngoes on []\n", "")
