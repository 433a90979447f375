"""A block that ends well says so itself: who is believed, and that nothing of it is in the way of the next."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock import CodeBlock, Limits
from cellblock.limits import MIB
from cellblock.runtime.cell.early_exit import Farewell
from cellblock.sandbox import cgroups
from cellblock.sync import (
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SyncCodeExecutor,
)
from tests.executors.session.live_session import need_sandbox
from tests.sandbox.probes import local, sandbox

EXPECT = "one.expect(main)"
BELIEVED = "(['killed', (0, True, 0)], True) reaped"
NOT_BELIEVED = "([], False) reaped"
LOCK = "import fcntl, os\nfcntl.flock(os.open('lock', os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
PORT = "import socket\nlistener = socket.create_server(('127.0.0.1', 4321), reuse_port=False)\nheld = listener.dup().detach()\n"
# Nobody lets go of it but the kernel, which takes its time.
LARGE = "import ctypes\nlarge = b'x' * (300 << 20)\nctypes.pythonapi.Py_IncRef(ctypes.py_object(large))\n"


def said(before: str, after: str) -> str:
    """Run a process with a child that says farewell; do `before` it is said, and `after` that."""
    program = f"""
        import os, signal, struct, time
        from cellblock.runtime.cell import early_exit
        early_exit._FIRST = os.getpid()
        heard, report = [], struct.Struct("<idq")

        def kill():
            heard.append("killed")
            os.kill(main, signal.SIGKILL)

        def tell(data):
            status, seconds, peak = report.unpack(data)
            heard.append((status, seconds > 0, peak))

        one = early_exit.Farewell(kill, tell, report)
        one.listen()
        one.begin()
        wait, go = os.pipe()
        main = os.fork()
        if main == 0:
            one.leave()
            os.read(wait, 1)
            early_exit.say()
            signal.pause()
        one._last_begun = lambda: main
        {before}
        os.write(go, b"x")
        while not one._said:
            time.sleep(0.01)
        {after}
        os.write(1, repr((heard, one.is_over)).encode())
        if not one.is_over:
            os.kill(main, signal.SIGKILL)
            os.waitpid(main, 0)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os.write(1, b" reaped")
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=True, capture_output=True
    ).stdout.decode()


def test_it_is_killed_first_and_then_told_of_with_its_time() -> None:
    assert said(EXPECT, "") == BELIEVED


def test_it_may_be_said_before_anybody_knows_who_says_it() -> None:
    assert said("", EXPECT) == BELIEVED
    assert said("", "") == NOT_BELIEVED


def test_it_is_told_of_once() -> None:
    assert said(EXPECT, "os.kill(os.getpid(), early_exit._SIGNAL)") == BELIEVED


def test_who_is_not_alone_is_not_believed() -> None:
    assert said(f"{EXPECT}; one._last_begun = lambda: 4_000_000", "") == NOT_BELIEVED


def test_another_one_is_not_believed() -> None:
    assert said("one.expect(1 << 22)", "") == NOT_BELIEVED


def test_who_does_not_listen_looks_at_nothing() -> None:
    one = Farewell(pytest.fail, lambda _: pytest.fail("told"), struct.Struct("<idq"))
    one.begin()
    one.expect(os.getpid())
    assert not one.is_over


@pytest.fixture
def executor(tmp_path: Path) -> SandboxCommandLineCodeExecutor:
    need_sandbox()
    return SandboxCommandLineCodeExecutor(work_dir=tmp_path, limits=Limits(memory_bytes=1024 * MIB))


def outputs(executor: SandboxCommandLineCodeExecutor, *codes: str) -> list[str]:
    with executor:
        return [
            executor.execute_code_blocks([CodeBlock(code, "python")]).check().output
            for code in codes
        ]


@pytest.mark.parametrize("code", [LOCK, PORT], ids=["lock", "port"])
def test_what_a_block_held_is_free_for_the_next(
    code: str, executor: SandboxCommandLineCodeExecutor
) -> None:
    assert outputs(executor, *[f"{code}{LARGE}print('mine')"] * 4) == ["mine\n"] * 4


def test_time_and_memory_are_those_of_the_block(executor: SandboxCommandLineCodeExecutor) -> None:
    with executor:
        result = executor.execute_code_blocks(
            [CodeBlock("x = b'x' * (200 << 20)\nfor _ in range(3_000_000): pass", "python")]
        )
    assert 150 * MIB < result.usage.peak_memory_bytes < 400 * MIB
    assert 0.02 < result.usage.cpu_seconds < 10


def test_files_of_earlier_blocks_are_no_memory_of_later_ones(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    if not cgroups.find().memory:
        pytest.skip("no control groups that count memory can be made here")
    codes = [
        "open('large', 'wb').write(b'x' * (100 << 20))",
        *["print('small')"] * 4,
    ]  # two cells take turns
    with executor:
        peaks = [
            executor.execute_code_blocks([CodeBlock(code, "python")]).usage.peak_memory_bytes
            for code in codes
        ]
    assert peaks[0] > 100 * MIB
    assert all(0 < peak < 50 * MIB for peak in peaks[1:]), peaks


def test_files_of_earlier_blocks_that_gave_way_take_nothing_from_the_peak(tmp_path: Path) -> None:
    if not cgroups.find().memory:
        pytest.skip("no control groups that count memory can be made here")
    written = (
        "with open('large', 'wb') as file:\n  for _ in range(150): file.write(b'x' * (1 << 20))"
    )
    codes = [written, *["x = bytearray(b'x') * (160 << 20)"] * 4]
    with sandbox(tmp_path, limits=Limits(memory_bytes=200 * MIB)) as executor:
        peaks = [
            executor.execute_code_blocks([CodeBlock(code, "python")]).usage.peak_memory_bytes
            for code in codes
        ]
    assert all(160 * MIB < peak <= 200 * MIB for peak in peaks[1:]), peaks


@pytest.mark.parametrize("kind", [sandbox, local, SandboxSessionCodeExecutor])
def test_too_much_time_is_named_also_where_nobody_saw_it(
    kind: Callable[..., SyncCodeExecutor],
) -> None:
    with kind(limits=Limits(cpu_seconds=0.02)) as executor:
        busy = (
            "import time\nend = time.process_time() + 0.03\nwhile time.process_time() < end: pass"
        )
        result = executor.execute_code_blocks([CodeBlock(busy, "python")])
    assert (result.exit_code, result.limit) == (124, "cpu_seconds")


@pytest.mark.parametrize("kind", [sandbox, local, SandboxSessionCodeExecutor])
def test_children_that_nobody_waits_for_use_time_as_well(
    kind: Callable[..., SyncCodeExecutor],
) -> None:
    if not cgroups.find().time:
        pytest.skip("no control groups that count CPU time can be made here")
    code = """
import os, signal, time
_ = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(100):
    if os.fork() == 0:
        while time.process_time() < 0.04: pass
        os._exit(0)
    try:
        os.wait()
    except ChildProcessError:
        pass
"""
    with kind(limits=Limits(cpu_seconds=0.3)) as executor:
        result = executor.execute_code_blocks([CodeBlock(code, "python")])
    assert (result.exit_code, result.limit) == (124, "cpu_seconds")
    assert 0.3 < result.usage.cpu_seconds < 3  # they would use 4


def test_children_count_as_well_and_end_with_it(executor: SandboxCommandLineCodeExecutor) -> None:
    spin = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'for _ in range(3_000_000): pass'])\n"
    left = "import os, time\nif os.fork() == 0:\n    time.sleep(0.3)\n    open('lived', 'w').close()\n    os._exit(0)\n"
    with executor:
        result = executor.execute_code_blocks([CodeBlock(spin, "python")])
        executor.execute_code_blocks([CodeBlock(left, "python")])
        look = executor.execute_code_blocks(
            [CodeBlock("import os, time; time.sleep(0.5); print(os.listdir())", "python")]
        )
    assert result.usage.cpu_seconds > 0.03
    assert "lived" not in look.output


def test_a_child_that_runs_to_the_end_of_the_script_ends_only_itself(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    code = "import os, time\nif os.fork() > 0:\n    os.wait()\n    time.sleep(0.2)\n    print('parent')\nelse: print('child')\n"
    assert outputs(executor, code) == ["child\nparent\n"]


def test_who_says_it_too_early_is_ended_by_it(executor: SandboxCommandLineCodeExecutor) -> None:
    # More than once: who is just about to wait does not hear the first one, and does not need to if it is true.
    say = "import os, time\nprint('said', flush=True)\nfor _ in range(50):\n    os.kill(1, 62)\n    time.sleep(0.1)\n"
    assert outputs(
        executor, f"{say}open('lived', 'w')", "import os; print('lived' in os.listdir())"
    ) == ["said\n", "False\n"]
