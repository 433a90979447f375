"""The early exit of a successful block: which notifications count, and that nothing is left."""

from __future__ import annotations

import os
import struct
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock import CodeBlock, CodeResult, Limits
from cellblock.limits import MIB
from cellblock.runtime.cell.early_exit import EarlyExit
from cellblock.sandbox import cgroups
from cellblock.sync import (
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SyncCodeExecutor,
)
from tests.runtime.python_process import run_python
from tests.sandbox.probes import local, sandbox

pytestmark = pytest.mark.depends_on_user

WATCH = "handler.watch(main)"
CONFIRMED = "(['killed', (0, True, 0)], True) reaped"
IGNORED = "([], False) reaped"
LOCK = """import fcntl, os
fcntl.flock(os.open('lock', os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
PORT = """import socket
listener = socket.create_server(('127.0.0.1', 4321), reuse_port=False)
held = listener.dup().detach()
"""
# Memory that only the kernel frees, which takes time.
LARGE = """import ctypes
large = b'x' * (200 << 20)
ctypes.pythonapi.Py_IncRef(ctypes.py_object(large))
"""


def notify_from_child(before: str, after: str) -> str:
    """Run a process whose child notifies it. Execute `before` before that, and `after` after it.

    Return the calls of the callbacks, whether the early exit was confirmed, and "reaped" if it was.
    """
    program = f"""
        import os, signal, struct, time
        from cellblock.runtime.cell import early_exit
        early_exit._INIT_PID = os.getpid()
        calls, report = [], struct.Struct("<idq")

        def kill():
            calls.append("killed")
            os.kill(main, signal.SIGKILL)

        def send_report(data):
            status, seconds, peak = report.unpack(data)
            calls.append((status, seconds > 0, peak))

        handler = early_exit.EarlyExit(kill, send_report, report)
        handler.enable()
        handler.reset()
        wait, go = os.pipe()
        main = os.fork()
        if main == 0:
            handler.disable_in_child()
            os.read(wait, 1)
            early_exit.notify()
            signal.pause()
        handler._last_started = lambda: main
        {before}
        os.write(go, b"x")
        while not handler._is_notified:
            time.sleep(0.01)
        {after}
        os.write(1, repr((calls, handler.is_confirmed)).encode())
        if not handler.is_confirmed:
            os.kill(main, signal.SIGKILL)
            os.waitpid(main, 0)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            os.write(1, b" reaped")
    """
    return run_python(textwrap.dedent(program))


NOTIFICATIONS = {
    "of a watched process": (WATCH, "", CONFIRMED),
    "before the process is watched": ("", WATCH, CONFIRMED),
    "without a watched process": ("", "", IGNORED),
    "repeated": (WATCH, "os.kill(os.getpid(), early_exit._SIGNAL)", CONFIRMED),
    "after another process was started": (
        f"{WATCH}; handler._last_started = lambda: 4_000_000",
        "",
        IGNORED,
    ),
    "of another process": ("handler.watch(1 << 22)", "", IGNORED),
}


def test_a_notification_of_the_watched_process_is_reported_once_and_kills_it_first() -> None:
    found = {name: notify_from_child(*each[:2]) for name, each in NOTIFICATIONS.items()}
    assert found == {name: expected for name, (*_, expected) in NOTIFICATIONS.items()}


def test_without_enable_nothing_is_checked() -> None:
    handler = EarlyExit(pytest.fail, lambda _: pytest.fail("reported"), struct.Struct("<idq"))
    handler.reset()
    handler.watch(os.getpid())
    assert not handler.is_confirmed


@pytest.fixture
def executor(tmp_path: Path) -> SandboxCommandLineCodeExecutor:
    return sandbox(tmp_path, limits=Limits(memory_bytes=1024 * MIB))


def result_of(executor: SyncCodeExecutor, code: str) -> CodeResult:
    return executor.execute_code_blocks([CodeBlock(code, "python")])


def outputs(executor: SyncCodeExecutor, *codes: str) -> list[str]:
    with executor:
        return [result_of(executor, code).check().output for code in codes]


def peaks_of(executor: SyncCodeExecutor, *codes: str) -> list[float]:
    if not cgroups.find_cgroups().memory:
        pytest.skip("no control groups that count memory can be made here")
    with executor:
        return [result_of(executor, code).usage.peak_memory_bytes or 0 for code in codes]


@pytest.mark.parametrize("code", [LOCK, PORT], ids=["lock", "port"])
def test_locks_and_ports_of_a_block_are_free_for_the_next(
    code: str, executor: SandboxCommandLineCodeExecutor
) -> None:
    assert outputs(executor, *[f"{code}{LARGE}print('mine')"] * 3) == ["mine\n"] * 3


def test_usage_is_that_of_the_block(executor: SandboxCommandLineCodeExecutor) -> None:
    with executor:
        usage = result_of(executor, "x = b'x' * (200 << 20)\nfor _ in range(3_000_000): pass").usage
    assert 150 * MIB < (usage.peak_memory_bytes or 0) < 400 * MIB
    assert 0.02 < usage.cpu_seconds < 10


def test_files_of_earlier_blocks_do_not_count_as_memory_of_later_ones(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    large = "open('large', 'wb').write(b'x' * (100 << 20))"
    first, *others = peaks_of(executor, large, *["print('small')"] * 4)  # two cells alternate
    assert first > 100 * MIB
    assert all(0 < peak < 50 * MIB for peak in others), others


def test_files_that_the_kernel_dropped_do_not_reduce_the_peak(tmp_path: Path) -> None:
    written = (
        "with open('large', 'wb') as file:\n  for _ in range(150): file.write(b'x' * (1 << 20))"
    )
    executor = sandbox(tmp_path, limits=Limits(memory_bytes=200 * MIB))
    _, *others = peaks_of(executor, written, *["x = bytearray(b'x') * (160 << 20)"] * 4)
    assert all(160 * MIB < peak <= 200 * MIB for peak in others), others


@pytest.mark.parametrize("kind", [sandbox, local, SandboxSessionCodeExecutor])
def test_an_exceeded_cpu_limit_is_reported_also_after_the_block_has_ended(
    kind: Callable[..., SyncCodeExecutor],
) -> None:
    busy = "import time\nend = time.process_time() + 0.03\nwhile time.process_time() < end: pass"
    with kind(limits=Limits(cpu_seconds=0.02)) as executor:
        result = result_of(executor, busy)
    assert (result.exit_code, result.limit) == (124, "cpu_seconds")


@pytest.mark.parametrize("kind", [sandbox, local])
def test_an_exceeded_memory_limit_is_reported_also_after_the_block_has_ended(
    kind: Callable[..., SyncCodeExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_cgroups(_limits: Limits) -> None:
        """Plan as on a machine without control groups."""

    for module in ("sandbox", "host"):
        monkeypatch.setattr(f"cellblock.backends.{module}.plan_cgroups", no_cgroups)
    with kind(limits=Limits(memory_bytes=12 * MIB)) as executor:
        assert result_of(executor, "bytearray(1 << 20)").exit_code == 0
        results = [result_of(executor, "bytearray(24 << 20)") for _ in range(5)]
    assert {(result.exit_code, result.limit) for result in results} == {(137, "memory_bytes")}


@pytest.mark.parametrize("kind", [sandbox, local, SandboxSessionCodeExecutor])
def test_cpu_time_of_children_that_are_not_waited_for_counts(
    kind: Callable[..., SyncCodeExecutor],
) -> None:
    if not cgroups.find_cgroups().cpu_time:
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
        result = result_of(executor, code)
    assert (result.exit_code, result.limit) == (124, "cpu_seconds")
    assert 0.3 < result.usage.cpu_seconds < 3  # without the limit, they would use 4


def test_children_count_for_the_usage_and_end_with_the_block(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    spin = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-c', 'for _ in range(3_000_000): pass'])\n"
    )
    left = (
        "import os, time\nif os.fork() == 0:\n    time.sleep(0.2)\n"
        "    open('lived', 'w').close()\n    os._exit(0)\n"
    )
    with executor:
        assert result_of(executor, spin).usage.cpu_seconds > 0.03
        result_of(executor, left)
        look = result_of(executor, "import os, time; time.sleep(0.4); print(os.listdir())")
    assert "lived" not in look.output


def test_a_child_that_runs_to_the_end_of_the_script_ends_only_itself(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    code = (
        "import os, time\nif os.fork() > 0:\n    os.wait()\n    time.sleep(0.2)\n"
        "    print('parent')\nelse: print('child')\n"
    )
    assert outputs(executor, code) == ["child\nparent\n"]


def test_a_block_that_sends_the_signal_itself_is_killed(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    # Several times: the first process may miss a signal just before it waits. That is harmless for
    # a real notification, since the block ends by itself.
    notify = (
        "import os, time\nprint('sent', flush=True)\n"
        "for _ in range(50):\n    os.kill(1, 62)\n    time.sleep(0.02)\n"
    )
    lives = not cgroups.find_cgroups().memory  # then no block may end early: see SandboxBackend
    assert outputs(
        executor, f"{notify}open('lived', 'w')", "import os; print('lived' in os.listdir())"
    ) == ["sent\n", f"{lives}\n"]
