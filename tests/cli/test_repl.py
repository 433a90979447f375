"""`cellblock repl` as its users meet it: at a terminal, and by a pipe."""

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
from cellblock.sandbox.probe import unavailable
from tests.cli.cli_process import COMMAND, notes, run
from tests.cli.terminal_process import PROMPT, TerminalCommand, picture

SEGFAULT = "import ctypes; ctypes.string_at(0)"
LOOP = "if True:\rprint('beg' + 'un')\rwhile True: pass\r\r"
RESTORED = "exit code 139; The session was restored"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be in a new folder, with state and temporary files in others."""
    if reason := unavailable():
        pytest.skip(reason)
    pytest.importorskip("IPython", reason="IPython is not installed: the extra `session` brings it")
    for name in ("here", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(Path(cellblock.__file__).parent.parent))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    return tmp_path / "here"


@pytest.fixture
def terminal() -> Iterator[TerminalCommand]:
    with TerminalCommand("repl") as terminal:
        terminal.see(PROMPT)
        yield terminal


def piped(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run("repl", *arguments, given=script)


def left_over(here: Path) -> list[str]:
    return sorted(path.name for path in (here.parent / "temporary").iterdir())


# at a terminal


def test_a_value_is_shown_and_variables_stay(terminal: TerminalCommand) -> None:
    terminal.run("x = 41")
    assert "\n42" in terminal.run("x + 1")


def test_a_function_of_several_lines_is_typed_with_its_indentation(
    terminal: TerminalCommand,
) -> None:
    terminal.run("def f(a):", "if a:", "return 'yes'", "")
    assert "'yes'" in terminal.run("f(1)")


def test_an_unfinished_line_asks_for_more(terminal: TerminalCommand) -> None:
    assert "[1, 2]" in terminal.run("[1,", "2]")


def test_output_is_shown_while_the_cell_runs(terminal: TerminalCommand) -> None:
    terminal.run("import os, time")
    terminal.run(
        "def wait():", "print('beg' + 'un')", "while not os.path.exists('go'): time.sleep(0.01)", ""
    )
    terminal.type("wait()\r")
    terminal.see("begun")
    Path("coding/go").touch()
    terminal.see(f"\n{PROMPT}")


def test_ctrl_c_ends_the_cell_and_keeps_the_session(terminal: TerminalCommand) -> None:
    terminal.run("x = 41")
    terminal.type(LOOP)
    terminal.see("begun")
    terminal.type("\x03")
    assert "--- interrupted" in terminal.see(f"\n{PROMPT}")
    assert "\n42" in terminal.run("x + 1")


def test_a_cell_that_ignores_ctrl_c_is_ended_all_the_same(terminal: TerminalCommand) -> None:
    terminal.run("x = 41")
    terminal.run("import signal")
    terminal.type(LOOP.replace("print", "signal.signal(2, signal.SIG_IGN); print"))
    terminal.see("begun")
    terminal.type("\x03")
    assert "The session was restored" in terminal.see(f"\n{PROMPT}")
    assert "\n42" in terminal.run("x + 1")


def test_ctrl_c_at_the_prompt_clears_the_line(terminal: TerminalCommand) -> None:
    terminal.type("this is no Python\x03")
    terminal.see(f"\n{PROMPT}")
    assert "\n7" in terminal.run("3 + 4")


def test_a_segfault_costs_its_cell_alone(terminal: TerminalCommand) -> None:
    terminal.run("x = 41")
    assert RESTORED in terminal.run(SEGFAULT)
    assert "\n42" in terminal.run("x + 1")


def test_a_session_whose_server_or_folder_is_gone_can_be_begun_anew(
    terminal: TerminalCommand,
) -> None:
    terminal.run("x = 1")
    for server in terminal.children():
        os.kill(server, signal.SIGKILL)
    assert ":restart begins a new session" in terminal.run("x")
    shutil.rmtree("coding")
    terminal.run(":restart")
    assert "\n7" in terminal.run("3 + 4")


def test_what_variables_hold_cannot_steer_the_terminal(terminal: TerminalCommand) -> None:
    terminal.run("x = type('X', (), {'__repr__': lambda self: chr(27) + '[2J' + 'evil'})()")
    assert "\ufffd[2Jevil" in terminal.run(":variables")


def test_a_time_limit_ends_a_question() -> None:
    with TerminalCommand("repl", "--timeout", "1") as terminal:
        terminal.see(PROMPT)
        terminal.type("input('wa' + 'it? ')\r")
        terminal.see("wait?")
        assert "Timeout" in terminal.see(f"\n{PROMPT}")
        assert "\n7" in terminal.run("3 + 4")


def test_going_back_to_a_checkpoint(terminal: TerminalCommand, here: Path) -> None:
    terminal.run("x = 'before'; n = open('kept.txt', 'w').write('1')")
    assert "checkpoint good:" in terminal.run(":checkpoint good")
    terminal.run("x = 'after'; n = open('more.txt', 'w').write('2')")
    assert "as they were at checkpoint good" in terminal.run(":restore")
    assert "'before'" in terminal.run("x")
    assert sorted(os.listdir(here / "coding")) == ["kept.txt"]


def test_input_is_asked_for_after_what_was_printed(terminal: TerminalCommand) -> None:
    terminal.type("print('a' + 'bc', end=''); name = input('na' + 'me? ')\r")
    assert "abc" in terminal.see("name?")
    terminal.type("Anna\r")
    terminal.see(f"\n{PROMPT}")
    assert "'Anna'" in terminal.run("name")


def test_ctrl_c_instead_of_an_answer_ends_the_cell(terminal: TerminalCommand) -> None:
    terminal.type("name = input('na' + 'me? ')\r")
    terminal.see("name?")
    terminal.type("\x03")
    assert "--- interrupted" in terminal.see(f"\n{PROMPT}")
    assert "NameError" in terminal.run("name")


def test_what_was_typed_is_found_again_by_the_next_one(
    terminal: TerminalCommand, here: Path
) -> None:
    terminal.run("x = 'kept'")
    terminal.type("\x04")
    assert terminal.ended() == 0
    history = here.parent / "state" / "cellblock" / "history"
    assert "x = 'kept'" in history.read_text()
    assert (history.stat().st_mode & 0o777, history.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with TerminalCommand("repl") as second:
        second.see(PROMPT)
        second.type("\x1b[A\r")  # the arrow up
        second.see("x = 'kept'")
        second.see(f"\n{PROMPT}")
        assert "'kept'" in second.run("x")


def test_history_is_not_kept_where_code_could_change_it(here: Path) -> None:
    with TerminalCommand(
        "repl", "--work-dir", ".", environment={"XDG_STATE_HOME": str(here)}
    ) as terminal:
        assert "is in the work folder" in terminal.see(PROMPT)
        terminal.run("x = 1")
    assert list(here.iterdir()) == []


def test_leaving_leaves_nothing_behind(terminal: TerminalCommand, here: Path) -> None:
    terminal.run("x = 1")
    terminal.type("exit\r")
    assert terminal.ended() == 0
    assert (list(here.iterdir()), left_over(here)) == ([], [])


def test_sigterm_ends_it_in_order(terminal: TerminalCommand, here: Path) -> None:
    terminal.type(LOOP)
    terminal.see("begun")
    terminal.signal(signal.SIGTERM)
    assert terminal.ended() == 128 + signal.SIGTERM
    assert left_over(here) == []


def test_pictures_are_opened_when_that_is_asked_for(here: Path) -> None:
    pytest.importorskip("IPython.display")
    programs = here.parent / "programs"
    programs.mkdir()
    opener = programs / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$1" >> {here.parent}/opened\n')
    opener.chmod(0o755)
    environment = {"DISPLAY": ":0", "PATH": f"{programs}:{os.environ['PATH']}"}
    with TerminalCommand("repl", "--open", environment=environment) as terminal:
        terminal.see(PROMPT)
        terminal.run("from IPython.display import HTML, Image")
        terminal.run("display(HTML('<p>'))")
        terminal.run("display(Image(b'\\x89PNG\\r\\n\\x1a\\n' + bytes(64)))")
        opened = here.parent / "opened"
        deadline = time.monotonic() + 10
        while not opened.exists() or not opened.read_text().endswith("\n"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    names = opened.read_text().split()
    assert [Path(name).suffix for name in names] == [".png"]
    assert Path(names[0]).is_relative_to(here / "coding")


# by a pipe


def test_a_script_is_run_statement_by_statement() -> None:
    script = "def f(a):\n    b = 1\n\n    return a + b\nf(2)\nfor i in range(2):\n    print(i)\nelse:\n    print('end')\nf(3)"
    done = piped(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n0\n1\nend\n4\n", "")


def test_the_exit_code_is_that_of_the_last_failure() -> None:
    done = piped(f"x = 1\n1/0\n{SEGFAULT}\nprint(x)\n")
    assert (done.returncode, done.stdout) == (139, "1\n")
    assert "ZeroDivisionError" in done.stderr
    assert RESTORED in done.stderr


def test_commands_work_by_a_pipe() -> None:
    script = "x = 1\n:checkpoint\nx = 2\n:restore 1\nx\n:variables\n"
    done = piped(script + "n = open('made.txt', 'w').write('abc')\n:files\n:quit\nprint('no')")
    assert done.returncode == 0
    assert done.stdout.split("\n", 1)[0].startswith("checkpoint 1: ")
    assert "\n1\nx  int  28 bytes  1\n" in done.stdout
    assert done.stdout.endswith("made.txt  3 bytes\n")


def test_a_new_session_has_no_variables_and_no_checkpoints() -> None:
    done = piped("x = 1\n:checkpoint\n:restart\n:restore 1\n'x' in dir()\n")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "False")
    assert notes(done.stderr) == ["there is no checkpoint 1: there are none"]


def test_unknown_commands_are_told() -> None:
    done = piped(":chekpoint\n")
    assert (done.returncode, notes(done.stderr)) == (
        1,
        ["there is no command :chekpoint; :help lists them"],
    )


def test_what_cannot_be_kept_is_named() -> None:
    script = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), name='sleeper', daemon=True).start()\n"
    done = piped(script + ":checkpoint\n")
    assert done.returncode == 1
    assert "the Python thread 'sleeper'" in done.stderr


def test_nobody_is_asked_by_a_pipe() -> None:
    done = piped("input()\nprint('not an answer')\n")
    assert done.stdout == "not an answer\n"
    assert "EOFError" in done.stderr


def test_a_plot_is_saved_and_its_path_shown(here: Path) -> None:
    pytest.importorskip(
        "matplotlib", reason="matplotlib is not installed: the extra `bench` brings it"
    )
    done = piped("import matplotlib.pyplot as plt\nlines = plt.plot([1, 3, 2])\n")
    assert done.returncode == 0, done.stderr
    made = [note.removeprefix("made ").split(" (")[0] for note in notes(done.stderr)]
    assert [Path(name).suffix for name in made] == [".png"]
    assert picture(here / made[0])


def test_an_interrupt_ends_a_script() -> None:
    argv = [*COMMAND, "repl"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    signal.signal(signal.SIGINT, before)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"while True: print('beat', flush=True)\n\nprint('never')\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"beat\n"
        process.send_signal(signal.SIGINT)
        output, said = process.communicate(timeout=15)
    assert process.returncode == 130
    assert b"never" not in output
    assert b"--- interrupted" in said


def test_the_same_limits_hold_as_for_run() -> None:
    done = piped("x = 1\nbytearray(1 << 30)\nprint(x)\n", "--memory", "300M")
    assert (done.returncode, done.stdout) == (137, "1\n")


def test_it_needs_no_script() -> None:
    assert piped("").returncode == 0
    closed = subprocess.run(
        [*COMMAND, "repl"], stdin=subprocess.DEVNULL, capture_output=True, timeout=15, check=False
    )
    assert (closed.returncode, closed.stdout) == (0, b"")


def test_without_ipython_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['IPython'] = None\nfrom cellblock.cli import main\nmain(['repl'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input="x\n",
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    assert done.returncode == 3
    assert "pip install ipython prompt_toolkit" in done.stderr
