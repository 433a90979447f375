"""`cellblock repl` at a terminal and with piped input."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cellblock
from cellblock.sandbox.probe import unavailable_reason
from tests.cli.cli_process import COMMAND, notes, run_command
from tests.cli.terminal_process import PROMPT, TerminalCommand, is_png
from tests.command_server import CommandProcess

SEGFAULT = "import ctypes; ctypes.string_at(0)"
LOOP = "if True:\rprint('beg' + 'un')\rwhile True: pass\r\r"
RESTORED = "exit code 139 (SIGSEGV: Segmentation fault); The session was restored"


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new folder, and put state and temporary files into other new folders."""
    if reason := unavailable_reason():
        pytest.skip(reason)
    pytest.importorskip("IPython", reason="IPython is not installed: the extra `session` brings it")
    for name in ("cwd", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(Path(cellblock.__file__).parent.parent))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return tmp_path / "cwd"


@pytest.fixture
def terminal() -> Iterator[TerminalCommand]:
    with TerminalCommand("repl") as terminal:
        terminal.wait_for(PROMPT)
        yield terminal


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("repl", *arguments, given=script)


def leftover_temporary_files(cwd: Path) -> list[str]:
    return sorted(path.name for path in (cwd.parent / "temporary").iterdir())


# at a terminal


def test_values_are_printed_and_variables_kept(terminal: TerminalCommand) -> None:
    terminal.run_block("x = 41")
    assert "\n42" in terminal.run_block("x + 1")


def test_multi_line_function_is_indented_automatically(
    terminal: TerminalCommand,
) -> None:
    terminal.run_block("def f(a):", "if a:", "return 'yes'", "")
    assert "'yes'" in terminal.run_block("f(1)")


def test_unfinished_statement_continues_on_the_next_line(terminal: TerminalCommand) -> None:
    assert "[1, 2]" in terminal.run_block("[1,", "2]")


def test_output_is_printed_while_the_block_runs(terminal: TerminalCommand) -> None:
    terminal.run_block("import os, time")
    terminal.run_block(
        "def wait():", "print('beg' + 'un')", "while not os.path.exists('go'): time.sleep(0.01)", ""
    )
    terminal.type_keys("wait()\r")
    terminal.wait_for("begun")
    Path("coding/go").touch()
    terminal.wait_for(f"\n{PROMPT}")


def test_ctrl_c_ends_the_block_and_keeps_the_session(terminal: TerminalCommand) -> None:
    terminal.run_block("x = 41")
    terminal.type_keys(LOOP)
    terminal.wait_for("begun")
    terminal.type_keys("\x03")
    assert "--- interrupted" in terminal.wait_for(f"\n{PROMPT}")
    assert "\n42" in terminal.run_block("x + 1")


def test_second_ctrl_c_ends_a_block_that_ignores_the_first(terminal: TerminalCommand) -> None:
    terminal.run_block("x = 41")
    terminal.run_block("import signal")
    terminal.type_keys(LOOP.replace("print", "signal.signal(2, signal.SIG_IGN); print"))
    terminal.wait_for("begun")
    terminal.type_keys("\x03")
    terminal.wait_for("--- the code is being stopped; Ctrl-C again kills it")
    terminal.type_keys("\x03")
    assert "The session was restored" in terminal.wait_for(f"\n{PROMPT}")
    assert "\n42" in terminal.run_block("x + 1")


def test_ctrl_c_at_the_prompt_clears_the_line(terminal: TerminalCommand) -> None:
    terminal.type_keys("this is no Python\x03")
    terminal.wait_for(f"\n{PROMPT}")
    assert "\n7" in terminal.run_block("3 + 4")


def test_segfault_ends_only_its_block(terminal: TerminalCommand) -> None:
    terminal.run_block("x = 41")
    assert RESTORED in terminal.run_block(SEGFAULT)
    assert "\n42" in terminal.run_block("x + 1")


def test_restart_recovers_from_a_lost_server_and_work_folder(
    terminal: TerminalCommand,
) -> None:
    terminal.run_block("x = 1")
    for server in terminal.child_pids():
        os.kill(server, signal.SIGKILL)
    assert ":restart starts a new session" in terminal.run_block("x")
    shutil.rmtree("coding")
    terminal.run_block(":restart")
    assert "\n7" in terminal.run_block("3 + 4")


def test_variables_cannot_send_control_sequences(terminal: TerminalCommand) -> None:
    terminal.run_block("x = type('X', (), {'__repr__': lambda self: chr(27) + '[2J' + 'evil'})()")
    assert "\ufffd[2Jevil" in terminal.run_block(":variables")


def test_time_limit_ends_a_pending_input() -> None:
    with TerminalCommand("repl", "--timeout", "1") as terminal:
        terminal.wait_for(PROMPT)
        terminal.type_keys("input('wa' + 'it? ')\r")
        terminal.wait_for("wait?")
        assert "Timeout" in terminal.wait_for(f"\n{PROMPT}")
        assert "\n7" in terminal.run_block("3 + 4")


def test_restore_returns_to_a_checkpoint(terminal: TerminalCommand, cwd: Path) -> None:
    terminal.run_block("x = 'before'; n = open('kept.txt', 'w').write('1')")
    assert "checkpoint good:" in terminal.run_block(":checkpoint good")
    terminal.run_block("x = 'after'; n = open('more.txt', 'w').write('2')")
    assert "as they were at checkpoint good" in terminal.run_block(":restore")
    assert "'before'" in terminal.run_block("x")
    assert sorted(os.listdir(cwd / "coding")) == ["kept.txt"]


def test_input_prompt_comes_after_earlier_output(terminal: TerminalCommand) -> None:
    terminal.type_keys("print('a' + 'bc', end=''); name = input('na' + 'me? ')\r")
    assert "abc" in terminal.wait_for("name?")
    terminal.type_keys("Anna\r")
    terminal.wait_for(f"\n{PROMPT}")
    assert "'Anna'" in terminal.run_block("name")


def test_ctrl_c_at_an_input_prompt_ends_the_block(terminal: TerminalCommand) -> None:
    terminal.type_keys("name = input('na' + 'me? ')\r")
    terminal.wait_for("name?")
    terminal.type_keys("\x03")
    assert "--- interrupted" in terminal.wait_for(f"\n{PROMPT}")
    assert "NameError" in terminal.run_block("name")


def test_history_is_available_in_the_next_session(terminal: TerminalCommand, cwd: Path) -> None:
    terminal.run_block("x = 'kept'")
    terminal.type_keys("\x04")
    assert terminal.wait() == 0
    history = cwd.parent / "state" / "cellblock" / "history"
    assert "x = 'kept'" in history.read_text()
    assert (history.stat().st_mode & 0o777, history.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with TerminalCommand("repl") as second:
        second.wait_for(PROMPT)
        second.type_keys("\x1b[A\r")  # the arrow up
        second.wait_for("x = 'kept'")
        second.wait_for(f"\n{PROMPT}")
        assert "'kept'" in second.run_block("x")


def test_history_is_not_saved_in_the_work_folder(cwd: Path) -> None:
    with TerminalCommand(
        "repl", "--work-dir", ".", environment={"XDG_STATE_HOME": str(cwd)}
    ) as terminal:
        assert "is in the work folder" in terminal.wait_for(PROMPT)
        terminal.run_block("x = 1")
    assert list(cwd.iterdir()) == []


def test_exit_leaves_nothing_behind(terminal: TerminalCommand, cwd: Path) -> None:
    terminal.run_block("x = 1")
    terminal.type_keys("exit\r")
    assert terminal.wait() == 0
    assert (list(cwd.iterdir()), leftover_temporary_files(cwd)) == ([], [])


def test_sigterm_ends_the_session_cleanly(terminal: TerminalCommand, cwd: Path) -> None:
    terminal.type_keys(LOOP)
    terminal.wait_for("begun")
    terminal.send_signal(signal.SIGTERM)
    assert terminal.wait() == 128 + signal.SIGTERM
    assert leftover_temporary_files(cwd) == []


def test_open_option_opens_only_images(cwd: Path) -> None:
    pytest.importorskip("IPython.display")
    programs = cwd.parent / "programs"
    programs.mkdir()
    opener = programs / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$1" >> {cwd.parent}/opened\n')
    opener.chmod(0o755)
    environment = {"DISPLAY": ":0", "PATH": f"{programs}:{os.environ['PATH']}"}
    with TerminalCommand("repl", "--open", environment=environment) as terminal:
        terminal.wait_for(PROMPT)
        terminal.run_block("from IPython.display import HTML, Image")
        terminal.run_block("display(HTML('<p>'))")
        terminal.run_block("display(Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(64)))")
        opened = cwd.parent / "opened"
        while not opened.exists() or not opened.read_text().endswith("\n"):
            time.sleep(0.01)
    names = opened.read_text().split()
    assert names == [str(cwd / "images" / "1.png")]


# through a pipe


def test_piped_script_runs_statement_by_statement() -> None:
    script = "def f(a):\n    b = 1\n\n    return a + b\nf(2)\n"
    script += "for i in range(2):\n    print(i)\nelse:\n    print('end')\nf(3)"
    done = run_script(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n0\n1\nend\n4\n", "")


def test_exit_code_is_that_of_the_last_failure() -> None:
    done = run_script(f"x = 1\n1/0\n{SEGFAULT}\nprint(x)\n")
    assert (done.returncode, done.stdout) == (139, "1\n")
    assert "ZeroDivisionError" in done.stderr
    assert RESTORED in done.stderr


def test_piped_script_is_decoded_and_split_as_python_does() -> None:
    script = b"# coding: latin-1\r# a comment\r\nx = 'caf\xe9'\rprint(ascii(x))\r\n"
    assert run_command("repl", given=script).stdout == "'caf\\xe9'\n"
    done = run_command("repl", given=b"print(1)\nprint(2)\n'caf\xe9'\n")
    assert done.returncode == 3
    assert "standard input is not UTF-8: see the byte 0xe9 in line 3. Save it" in done.stderr


def test_commands_work_through_a_pipe() -> None:
    script = "x = 1\n:checkpoint\nx = 2\n:restore 1\nx\n:variables\n"
    done = run_script(script + "n = open('made.txt', 'w').write('abc')\n:files\n:quit\nprint('no')")
    assert done.returncode == 0
    assert done.stdout.split("\n", 1)[0].startswith("checkpoint 1: ")
    assert "\n1\nx  int  28 bytes  1\n" in done.stdout
    assert done.stdout.endswith("made.txt  3 bytes\n")


def test_restart_clears_variables_and_checkpoints() -> None:
    done = run_script("x = 1\n:checkpoint\n:restart\n:restore 1\n'x' in dir()\n")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "False")
    assert notes(done.stderr) == ["there is no checkpoint; :checkpoint creates one"]


def test_unknown_command_is_reported() -> None:
    done = run_script(":chekpoint\n")
    assert (done.returncode, notes(done.stderr)) == (
        1,
        ["unknown command :chekpoint; :help lists the commands"],
    )


def test_failed_checkpoint_names_the_cause() -> None:
    script = "import threading, time\n"
    script += "arguments = {'args': (60,), 'name': 'sleeper', 'daemon': True}\n"
    script += "threading.Thread(target=time.sleep, **arguments).start()\n"
    done = run_script(script + ":checkpoint\n")
    assert done.returncode == 1
    assert "the Python thread 'sleeper'" in done.stderr


def test_input_fails_in_a_piped_script() -> None:
    done = run_script("input()\nprint('not an answer')\n")
    assert done.stdout == "not an answer\n"
    assert "EOFError: input() is not available without a terminal." in done.stderr


def test_plot_is_saved_and_its_path_printed(cwd: Path) -> None:
    pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed: the extra `bench` brings it"
    )
    done = run_script("import matplotlib.pyplot as plt\nlines = plt.plot([1, 3, 2])\n")
    assert done.returncode == 0, done.stderr
    created = [note.removeprefix("created ").split(" (")[0] for note in notes(done.stderr)]
    assert created == ["images/1.png"]
    assert is_png(cwd / "images" / "1.png")
    assert os.listdir(cwd) == ["images"]


def test_interrupt_ends_a_piped_script() -> None:
    pipe = subprocess.PIPE
    process = CommandProcess[bytes](["repl"], stdin=pipe, stdout=pipe, stderr=pipe)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"while True: print('beat', flush=True)\n\nprint('never')\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"beat\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
    assert process.returncode == 130
    assert b"never" not in output
    assert b"--- interrupted" in errors


def test_memory_option_applies() -> None:
    done = run_script("x = 1\nbytearray(1 << 30)\nprint(x)\n", "--memory", "300M")
    assert (done.returncode, done.stdout) == (137, "1\n")


def test_empty_input_is_accepted() -> None:
    assert run_script("").returncode == 0
    closed = subprocess.run(
        [*COMMAND, "repl"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (closed.returncode, closed.stdout) == (0, b"")


def test_missing_ipython_is_reported_with_the_install_command() -> None:
    program = (
        "import sys; sys.modules['IPython'] = None\nfrom cellblock.cli import main\nmain(['repl'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="x\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "pip install ipython prompt_toolkit" in done.stderr
