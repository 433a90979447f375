"""`cellblock repl` at a terminal and with piped input."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.cli_process import COMMAND, notes, run_command
from tests.cli.terminal_process import PROMPT, TerminalCommand, is_png
from tests.command_server import CommandProcess

SEGFAULT = "import ctypes; ctypes.string_at(0)"
LOOP = "if True:\rprint('beg' + 'un')\rwhile True: pass\r\r"
RESTORED = "exit code 139 (SIGSEGV: Segmentation fault); The session was restored"

pytestmark = pytest.mark.usefixtures("live")


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("repl", *arguments, given=script)


# at a terminal


def test_blocks_of_one_and_of_many_lines_share_variables(terminal: TerminalCommand) -> None:
    terminal.run_block("x = 41")
    assert "\n42" in terminal.run_block("x + 1")
    terminal.run_block("def f(a):", "if a:", "return 'yes'", "")  # indented automatically
    assert "'yes'" in terminal.run_block("f(1)")
    assert "[1, 2]" in terminal.run_block("[1,", "2]")
    terminal.type_keys("this is no Python\x03")
    terminal.wait_for(f"\n{PROMPT}")
    assert "\n7" in terminal.run_block("3 + 4")
    terminal.run_block("x = type('X', (), {'__repr__': lambda self: chr(27) + '[2J' + 'evil'})()")
    assert "\ufffd[2Jevil" in terminal.run_block(":variables")


def test_ctrl_c_ends_the_block_shows_its_line_and_keeps_the_session(
    terminal: TerminalCommand,
) -> None:
    terminal.run_block("import time; x = 41")
    terminal.run_block("def wait():", "print('beg' + 'un')", "time.sleep(1000)", "")
    terminal.type_keys("wait()\r")
    terminal.wait_for("begun")  # while the block runs
    terminal.type_keys("\x03")
    shown = terminal.wait_for(f"\n{PROMPT}")
    for part in ("KeyboardInterrupt", "time.sleep(1000)", "--- interrupted"):
        assert part in shown
    assert "_on_interrupt" not in shown
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


def test_the_session_survives_a_segfault_and_restart_the_loss_of_its_server(
    terminal: TerminalCommand,
) -> None:
    terminal.run_block("x = 41")
    assert RESTORED in terminal.run_block(SEGFAULT)
    assert "\n42" in terminal.run_block("x + 1")
    for server in terminal.child_pids():
        os.kill(server, signal.SIGKILL)
    assert ":restart starts a new session" in terminal.run_block("x")
    shutil.rmtree("coding")
    terminal.run_block(":restart")
    assert "\n7" in terminal.run_block("3 + 4")


def test_time_limit_ends_a_pending_input() -> None:
    with TerminalCommand("repl", "--timeout", "1") as terminal:
        terminal.wait_for(PROMPT)
        terminal.type_keys("input('wa' + 'it? ')\r")
        terminal.wait_for("wait?")
        assert "Timeout" in terminal.wait_for(f"\n{PROMPT}")
        assert "\n7" in terminal.run_block("3 + 4")


def test_input_asks_after_earlier_output_and_ctrl_c_ends_it(terminal: TerminalCommand) -> None:
    terminal.type_keys("print('a' + 'bc', end=''); name = input('na' + 'me? ')\r")
    assert "abc" in terminal.wait_for("name?")
    terminal.type_keys("Anna\r")
    terminal.wait_for(f"\n{PROMPT}")
    assert "'Anna'" in terminal.run_block("name")
    terminal.type_keys("other = input('na' + 'me? ')\r")
    terminal.wait_for("name?")
    terminal.type_keys("\x03")
    assert "--- interrupted" in terminal.wait_for(f"\n{PROMPT}")
    assert "NameError" in terminal.run_block("other")


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
    environment = {"XDG_STATE_HOME": str(cwd)}
    with TerminalCommand("repl", "--work-dir", ".", environment=environment) as terminal:
        assert "is in the work folder" in terminal.wait_for(PROMPT)
        terminal.run_block("x = 1")
    assert list(cwd.iterdir()) == []


def test_exit_leaves_nothing_behind(terminal: TerminalCommand, cwd: Path, temporary: Path) -> None:
    terminal.run_block("x = 1")
    terminal.type_keys("exit\r")
    assert terminal.wait() == 0
    assert [*cwd.iterdir(), *temporary.iterdir()] == []


def test_sigterm_ends_the_session_cleanly(terminal: TerminalCommand, temporary: Path) -> None:
    terminal.type_keys(LOOP)
    terminal.wait_for("begun")
    terminal.send_signal(signal.SIGTERM)
    assert terminal.wait() == 128 + signal.SIGTERM
    assert list(temporary.iterdir()) == []


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
    done = run_script("input()\nprint('not an answer')\n:chekpoint\n")
    assert (done.returncode, done.stdout) == (1, "not an answer\n")
    assert "EOFError: input() is not available without a terminal." in done.stderr
    assert notes(done.stderr)[-1] == "unknown command :chekpoint; :help lists the commands"


@pytest.mark.slow
def test_piped_script_is_decoded_and_split_as_python_does() -> None:
    script = b"# coding: latin-1\r# a comment\r\nx = 'caf\xe9'\rprint(ascii(x))\r\n"
    assert run_command("repl", given=script).stdout == "'caf\\xe9'\n"
    done = run_command("repl", given=b"print(1)\nprint(2)\n'caf\xe9'\n")
    assert done.returncode == 3
    assert "standard input is not UTF-8: see the byte 0xe9 in line 3. Save it" in done.stderr


def test_commands_work_through_a_pipe(cwd: Path) -> None:
    script = "x = 1\nn = open('kept.txt', 'w').write('abc')\n:checkpoint good\nx = 2\n"
    script += "n = open('more.txt', 'w').write('2')\n:restore good\nx\n:variables\n:files\n"
    done = run_script(f"{script}:quit\nprint('no')")
    assert done.returncode == 0
    assert done.stdout.split("\n", 1)[0].startswith("checkpoint good: ")
    assert "as they were at checkpoint good" in done.stdout + done.stderr
    assert "\n1\n" in done.stdout
    assert "x  int  28 bytes  1\n" in done.stdout
    assert done.stdout.endswith("kept.txt  3 bytes\n")
    assert os.listdir(cwd / "coding") == ["kept.txt"]


@pytest.mark.slow
def test_failed_checkpoint_names_the_cause_and_restart_clears_the_others() -> None:
    done = run_script("x = 1\n:checkpoint\n:restart\n:restore 1\n'x' in dir()\n")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "False")
    assert notes(done.stderr) == ["there is no checkpoint; :checkpoint creates one"]
    script = "import threading, time\n"
    script += "arguments = {'args': (60,), 'name': 'sleeper', 'daemon': True}\n"
    script += "threading.Thread(target=time.sleep, **arguments).start()\n"
    done = run_script(script + ":checkpoint\n")
    assert done.returncode == 1
    assert "the Python thread 'sleeper'" in done.stderr


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


def test_exit_code_is_that_of_the_last_failure() -> None:
    done = run_script(f"x = 1\n1/0\n{SEGFAULT}\nprint(x)\n")
    assert (done.returncode, done.stdout) == (139, "1\n")
    assert "ZeroDivisionError" in done.stderr
    assert RESTORED in done.stderr
    done = run_script("x = 1\nbytearray(1 << 30)\nprint(x)\n", "--memory", "300M")
    assert (done.returncode, done.stdout) == (137, "1\n")


@pytest.mark.slow
def test_empty_input_is_accepted_and_a_missing_ipython_reported() -> None:
    assert run_script("").returncode == 0
    null = subprocess.DEVNULL
    closed = subprocess.run([*COMMAND, "repl"], stdin=null, capture_output=True, text=True)
    assert (closed.returncode, closed.stdout) == (0, "")
    program = "import sys; sys.modules['IPython'] = None\n"
    program += "from cellblock.cli import main\nmain(['repl'])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, input="x\n", capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "pip install ipython prompt_toolkit" in done.stderr
