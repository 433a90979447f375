"""Cells that crash, run out of memory or time, are interrupted, or wait for input."""

from __future__ import annotations

import ast
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock.executors.displays import strip_terminal_codes
from tests.kernel.live_kernel import LiveKernel, install, open_kernel
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.kernel

_Hook = Callable[[dict[str, Any]], None]
RESTORED = "its variables are as they were before this cell"


@pytest.fixture(scope="module")
def limited(kernels: Path) -> Iterator[LiveKernel]:
    """Yield a kernel with a time limit and a memory limit."""
    install("--timeout=5", "--memory=300M", name="limited")
    with open_kernel(kernels / "limited", "limited") as running:
        yield running


def test_variables_survive_a_crash(kernel: LiveKernel) -> None:
    for crash in ("import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"):
        kernel.run("kept = 41")
        reply = kernel.run(f"lost = 1; print('before'); {crash}")
        (error,) = reply.of_kind("error")
        assert reply.text() in ("before\n", "")
        assert RESTORED in error["evalue"]
        assert reply.content["ename"] == "ProcessEnded"
        after = kernel.run("kept + 1, 'lost' in globals()")
        assert after.value == "(42, False)"
        number = reply.content["execution_count"] + 1
        assert after.content["execution_count"] == number
        assert f"In[{number + 1}]" in "".join(kernel.run("1/0").content["traceback"])


def test_the_history_has_the_cells_that_crashed(kernel: LiveKernel) -> None:
    kernel.run("11")
    crash = "import os; os._exit(1)"
    number = kernel.run(crash).content["execution_count"]
    kernel.run("22")
    kernel.run("exit")
    kernel.run("33")
    kernel.run("%checkpoints")
    shown = f"In[{number}:], _i{number}, _i{number + 1}, _i, len(In)"
    expected = [crash, "22", "exit", "33", "%checkpoints", shown]
    shown_value = ast.literal_eval(kernel.run(shown).value)
    assert shown_value == (expected, crash, "22", "%checkpoints", number + 6)


@pytest.mark.slow
def test_the_session_goes_on_after_its_limits(limited: LiveKernel) -> None:
    limited.run("kept = 1")
    late = limited.run("import time\ntime.sleep(60)")
    assert late.status == "error"
    shown = late.text("stderr") + str(late.of_kind("error"))
    assert "The cell ran longer than 5 s, the limit that --timeout sets." in shown
    large = limited.run("data = bytearray(10**9)\nfor i in range(0, 10**9, 4096): data[i] = 1")
    assert large.content["ename"] == "OutOfMemory"
    assert "300 MiB of memory, the limit that --memory sets. The session" in large.content["evalue"]
    assert limited.run("kept").value == "1"


@pytest.mark.slow
def test_a_kernel_whose_sandbox_is_killed_begins_a_new_session(kernels: Path) -> None:
    with open_kernel(kernels / "killed") as kernel:
        kernel.run("kept = 1")
        for pid in _children(kernel.manager.provisioner.process.pid):
            os.kill(pid, signal.SIGKILL)
        lost = kernel.run("kept")
        assert (lost.status, lost.content["ename"]) == ("error", "BackendLost")
        assert kernel.run("'kept' in globals()").value == "False"


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _interrupt(kernel: LiveKernel) -> None:
    request = kernel.client.session.msg("interrupt_request", {})
    kernel.client.control_channel.send(request)


def _when_shown(text: str, act: Callable[[LiveKernel], None], kernel: LiveKernel) -> _Hook:
    """Return a hook that acts when a cell has written `text`."""

    def watch(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream" and text in message["content"]["text"]:
            act(kernel)

    return watch


@pytest.mark.parametrize("way", exhaustive(["message", "signal"]))
def test_an_interrupt_ends_the_cell_and_keeps_the_variables(kernel: LiveKernel, way: str) -> None:
    kernel.run("kept = 5")
    act = _interrupt if way == "message" else _send_signal
    code = "import time\nprint('go', flush=True)\ntime.sleep(60)"
    reply = kernel.run(code, on_message=_when_shown("go", act, kernel))
    assert (reply.status, reply.content["ename"]) == ("error", "KeyboardInterrupt")
    assert "time.sleep" in strip_terminal_codes("".join(reply.content["traceback"]))
    assert kernel.run("kept").value == "5"


def _send_signal(kernel: LiveKernel) -> None:
    kernel.manager.signal_kernel(signal.SIGINT)


@pytest.mark.parametrize(("command", "end"), [(":", "SIGINT: 2"), ("trap '' INT", "SIGKILL: 9")])
def test_an_interrupt_ends_a_script_with_its_processes(
    kernel: LiveKernel, command: str, end: str
) -> None:
    code = f"%%bash\n{command}\necho go\nsleep 601\necho on"
    reply = kernel.run(code, on_message=_when_shown("go\n", _interrupt, kernel))
    assert (reply.status, reply.content["ename"]) == ("error", "CalledProcessError")
    assert reply.content["evalue"].endswith(f"died with <Signals.{end}>."), reply.content
    assert reply.text() == "go\n" + "Process was interrupted.\n" * (end == "SIGINT: 2")
    find = "subprocess.run(['pgrep', '-f', 'sleep 601'], capture_output=True).stdout"
    assert kernel.run(f"import subprocess\nwhile {find}: pass").status == "ok"


def test_a_second_interrupt_kills_a_cell_that_goes_on(kernel: LiveKernel) -> None:
    kernel.run("kept = 5")
    reply = kernel.run(
        "import time\nkept = 6\nwhile True:\n    try:\n        print('caught', flush=True)\n"
        "        time.sleep(600)\n    except KeyboardInterrupt: pass",
        on_message=_when_shown("caught", _interrupt, kernel),
    )
    assert (reply.status, reply.content["ename"]) == ("error", "KeyboardInterrupt")
    assert kernel.run("kept").value == "5"


def test_input_is_answered_by_the_client_or_an_error(kernel: LiveKernel) -> None:
    assert kernel.run("input('Name? ')", answers=["Ada"]).value == "'Ada'"
    assert kernel.run("import getpass; getpass.getpass()", answers=["secret"]).value == "'secret'"
    for code in ("input('Name? ')", "import getpass\ngetpass.getpass()"):
        reply = kernel.run(code)
        assert reply.content["ename"] == "EOFError"
        assert "nbconvert" in reply.content["evalue"]
        traceback = strip_terminal_codes("".join(reply.content["traceback"]))
        assert code.splitlines()[-1] in traceback
        assert "cellblock" not in traceback
        assert "input_callback" not in traceback


def test_an_interrupt_ends_a_cell_that_waits_for_input(kernel: LiveKernel) -> None:
    ended = kernel.client.execute("input('Name? ')", allow_stdin=True, stop_on_error=False)
    kernel.client.get_stdin_msg(timeout=None)
    kernel.manager.interrupt_kernel()
    while (reply := kernel.client.get_shell_msg(timeout=None))["parent_header"]["msg_id"] != ended:
        pass
    assert reply["content"]["status"] == "error"
    assert kernel.run("1 + 1").value == "2"


@pytest.mark.slow
def test_a_restart_and_other_notebooks_of_the_folder_share_files_but_no_variables(
    kernel: LiveKernel,
) -> None:
    read = "'shared' in globals(), open('kept.txt').read()"
    kernel.run("shared = 1\nopen('kept.txt', 'w').write('text')")
    with open_kernel(kernel.folder) as other:
        assert other.run(read).value == "(False, 'text')"
        other.run("shared = 1")
        other.manager.restart_kernel()
        other.client.wait_for_ready(timeout=None)
        assert other.run(read).value == "(False, 'text')"
    assert kernel.run(read).value == "(True, 'text')"


def test_a_killed_kernel_leaves_no_process(kernels: Path) -> None:
    with open_kernel(kernels / "left") as kernel:
        kernel.run("import subprocess\nprocess = subprocess.Popen(['sleep', '60'])")
        pid = kernel.manager.provisioner.process.pid
        watched = [os.pidfd_open(child) for child in _children(pid)]
        assert watched
        os.kill(pid, signal.SIGKILL)
        for child in watched:
            assert select.select([child], [], [])[0]
            os.close(child)


def test_code_has_no_network_and_sees_no_files_of_the_user(kernel: LiveKernel) -> None:
    (kernel.folder / "private.txt").write_text("secret")
    reply = kernel.run(f"open({str(kernel.folder / 'private.txt')!r}).read()")
    assert reply.content["ename"] == "FileNotFoundError"
    reply = kernel.run("import socket; socket.create_connection(('1.1.1.1', 53), 1)")
    assert reply.status == "error"


@pytest.mark.slow
def test_modules_in_the_work_folder_are_not_imported_by_the_kernel(kernels: Path) -> None:
    folder = kernels / "hijack"
    folder.mkdir()
    install("--work-dir=.", name="here")
    for name in ("zmq", "ipykernel", "cellblock", "tornado"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'escaped')!r}, 'w')")
    with open_kernel(folder, "here") as kernel:
        assert kernel.run("2 + 2").value == "4"
    assert not (folder / "escaped").exists()
    # A program that has the folder on its import path does import them.
    subprocess.run([sys.executable, "-c", "import zmq"], cwd=folder, check=True)
    assert (folder / "escaped").exists()
