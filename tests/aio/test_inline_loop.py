"""Blocks that run on the calling thread: results, clean-up and interrupts."""

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
from cellblock.aio.background_loop import background_loop
from cellblock.aio.inline_loop import InlineLoop, can_use_inline_loop, run_inline
from cellblock.backends.socket_reader import SocketReader
from cellblock.errors import ExecutorStopped
from cellblock.runtime.linux.process_tree import has_ended
from tests.executors.session.live_session import skip_without_sandbox
from tests.executors.test_callers import background_loop_blocked

T = TypeVar("T")

FACES: dict[str, type[sync.SyncCodeExecutor]] = {
    "sandbox": sync.SandboxCommandLineCodeExecutor,
    "session": sync.SandboxSessionCodeExecutor,
}


@pytest.fixture(params=FACES)
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.SyncCodeExecutor]:
    skip_without_sandbox()
    with FACES[request.param](work_dir=tmp_path) as executor:
        yield executor


def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call `function` in a new thread: in the main one the test timeout may have a handler."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result()


def output_of(executor: sync.SyncCodeExecutor, code: str) -> str:
    return executor.execute_code_blocks([CodeBlock(code, "python")]).output


# the loop


def test_result_and_error_reach_the_caller() -> None:
    async def three() -> int:
        await asyncio.sleep(0)
        return 3

    async def fail() -> None:
        raise KeyError("mine")

    assert in_thread(run_inline, three) == 3
    with pytest.raises(KeyError, match="mine"):
        in_thread(run_inline, fail)


def test_futures_timers_readers_and_other_threads_wake_the_loop() -> None:
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
        called = loop.create_future()
        threading.Timer(0.01, loop.call_soon_threadsafe, (called.set_result, "called")).start()
        seen.append(await called)
        for descriptor in (readable, writable):
            os.close(descriptor)
        return seen

    assert in_thread(run_inline, work) == ["piped", "called"]


def test_closed_loop_refuses_calls_and_has_no_open_descriptor() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    before = len(os.listdir("/proc/self/fd"))
    closed = in_thread(run_inline, loop)
    assert isinstance(closed, InlineLoop)
    assert closed.is_closed()
    with pytest.raises(RuntimeError):
        closed.call_soon_threadsafe(print)
    assert len(os.listdir("/proc/self/fd")) == before


def test_inline_loop_is_refused_beside_another_loop_or_a_signal_handler() -> None:
    async def ask() -> bool:
        return can_use_inline_loop()

    def raise_timeout(_number: int, _frame: object) -> None:
        raise TimeoutError

    assert in_thread(can_use_inline_loop)
    assert not in_thread(asyncio.run, ask())
    before = signal.signal(signal.SIGUSR1, raise_timeout)
    try:
        assert not can_use_inline_loop()
        assert in_thread(can_use_inline_loop)
    finally:
        signal.signal(signal.SIGUSR1, before)


# blocks


def test_blocks_of_a_started_executor_do_not_need_the_background_loop(
    executor: sync.SyncCodeExecutor,
) -> None:
    with background_loop_blocked():
        assert [in_thread(output_of, executor, f"print({number})") for number in range(3)] == [
            "0\n",
            "1\n",
            "2\n",
        ]


def test_threads_one_after_another_leave_no_open_descriptor(
    executor: sync.SyncCodeExecutor,
) -> None:
    counts = list[int]()
    for _ in range(10):
        assert in_thread(output_of, executor, "print('hi')") == "hi\n"
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0]


@pytest.mark.parametrize("make", [InlineLoop, asyncio.new_event_loop], ids=["inline", "asyncio"])
def test_loop_closed_before_it_removes_its_watch_leaves_no_open_descriptor(
    make: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    ours, theirs = socket.socketpair()
    reader = SocketReader(ours, lambda: None)
    for _ in range(5):
        closed, next_one = make(), make()
        assert reader.read_on(closed)
        assert reader.read_on(next_one)  # asks the other loop to remove its watch later
        closed.close()
        next_one.close()
    reader.stop()
    for one in (ours, theirs):
        one.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_concurrent_threads_and_a_loop_each_get_their_own_output(
    executor: sync.SyncCodeExecutor,
) -> None:
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


def test_token_cancelled_in_another_thread_cancels_the_block(
    executor: sync.SyncCodeExecutor, tmp_path: Path
) -> None:
    token = CancellationToken()

    def run() -> tuple[int, str]:
        block = CodeBlock(
            (
                "import time; print('so far', flush=True)\nopen('started', 'w').close(); "
                "time.sleep(60)"
            ),
            "python",
        )
        result = executor.execute_code_blocks([block], token)
        return result.exit_code, result.output.split("\n")[0]

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        while not (tmp_path / "started").exists():
            time.sleep(0.01)
        token.cancel()
        assert running.result() == (125, "so far")
    assert in_thread(output_of, executor, "print('hi')") == "hi\n"


def test_who_waits_is_told_when_another_thread_stops_the_executor(
    executor: sync.SyncCodeExecutor, tmp_path: Path
) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            output_of, executor, "import time; open('started', 'w').close(); time.sleep(60)"
        )
        while not (tmp_path / "started").exists():
            time.sleep(0.01)
        executor.stop()
        with pytest.raises(ExecutorStopped):
            running.result()
    assert in_thread(output_of, executor, "print('hi')") == "hi\n"


def test_server_killed_between_calls_is_replaced(tmp_path: Path) -> None:
    skip_without_sandbox()
    with sync.SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        in_thread(output_of, executor, "print('hi')")
        inner = executor._executor
        assert isinstance(inner, SandboxCommandLineCodeExecutor)
        assert inner._connection is not None
        server = inner._connection.pid
        os.kill(server, signal.SIGKILL)
        while not has_ended(server):
            time.sleep(0.001)
        assert in_thread(output_of, executor, "print('hi')") == "hi\n"


def test_call_inside_a_running_loop_uses_the_background_loop(
    executor: sync.SyncCodeExecutor,
) -> None:
    async def main() -> str:
        return output_of(executor, "print('hi')")

    assert asyncio.run(main()) == "hi\n"
    assert background_loop().loop.is_running()


# interrupts, in a main thread without a handler

PROGRAM = """
import os, signal, sys, threading, time
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor

folder = sys.argv[1]
LONG = "open('started', 'w').close(); import time; time.sleep(60)"

def output_of(code):
    return executor.execute_code_blocks([CodeBlock(code, "python")]).output.strip()

def interrupt(after=0.0):
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGINT)

def wait_for_interrupt():
    # Two signals at once would be one.
    while not signal.getsignal(signal.SIGINT).__self__.interrupt_count:
        time.sleep(0.01)

def when_started(*steps):
    def wait():
        while not os.path.exists(f"{folder}/started"):
            time.sleep(0.01)
        for step in steps:
            step()
    threading.Thread(target=wait).start()

with SandboxCommandLineCodeExecutor(work_dir=folder) as executor:
    server = executor._executor._connection.pid
    @
    files = [name for name in os.listdir(folder) if name != "started"]
    print(output_of("print('continues')"), files)
"""
INTERRUPTED = {
    "once": """
    when_started(interrupt)
    try:
        output_of(LONG)
    except KeyboardInterrupt:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        print("interrupted")
""",
    "twice, with a server that does not answer": """
    when_started(
        lambda: os.kill(server, signal.SIGSTOP), interrupt, wait_for_interrupt, interrupt
    )
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
    when_started(lambda: os.kill(os.getpid(), signal.SIGALRM))
    try:
        output_of(LONG)
    except TimeoutError as error:
        print(error)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
""",
    "at any moment": """
    count = 0
    for number in range(40):
        interrupting = threading.Thread(target=interrupt, args=(number * 1e-4,))
        try:
            interrupting.start()
            assert output_of(f"print({number})") == str(number)
            interrupting.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            count += 1
            interrupting.join()
    print("interrupted" if count == 40 else count)
""",
}


@pytest.mark.parametrize("how", INTERRUPTED)
def test_interrupt_ends_the_block_and_reaches_the_caller(tmp_path: Path, how: str) -> None:
    skip_without_sandbox()
    program = PROGRAM.replace("    @\n", INTERRUPTED[how].lstrip("\n"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\ncontinues []\n", "")
