"""What the REPL does for a person: Tab, hidden answers, colours, interrupted lines, images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import cellblock
from cellblock.sandbox.probe import unavailable_reason
from tests.cli.cli_process import notes, run_command
from tests.cli.terminal_process import PROMPT, TerminalCommand

IMAGE = "b'\\x89PNG\\r\\n\\x1a\\n' + bytes(64)"


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new folder, and put state into another."""
    if reason := unavailable_reason():
        pytest.skip(reason)
    pytest.importorskip("IPython", reason="IPython is not installed: the extra `session` brings it")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(Path(cellblock.__file__).parent.parent))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return tmp_path / "cwd"


@pytest.fixture
def terminal() -> Iterator[TerminalCommand]:
    with TerminalCommand("repl") as terminal:
        terminal.wait_for(PROMPT)
        yield terminal


# completion


@pytest.mark.parametrize(
    ("typed", "rest"),
    [
        ("thing.numb", "er"),
        ("thi", "ng"),
        ("table['col", "umn"),
        ("open('measure", "ments.csv"),
        (":vari", "ables"),
    ],
)
def test_tab_completes(terminal: TerminalCommand, typed: str, rest: str) -> None:
    terminal.run_block("class Thing: number = 1")
    terminal.run_block("thing, table = Thing(), {'column': 1}")
    terminal.run_block("open('measurements.csv', 'w').close()")
    terminal.type_keys(f"{typed}\t")
    terminal.wait_for(rest)


def test_tab_completes_the_name_of_a_checkpoint(terminal: TerminalCommand) -> None:
    terminal.run_block("x = 1")
    terminal.run_block(":checkpoint before")
    terminal.type_keys(":restore bef\t")
    terminal.wait_for("ore")
    terminal.wait_for("ore")  # first in `:restore`
    terminal.type_keys("\r")
    assert "as they were at checkpoint before" in terminal.wait_for(f"\n{PROMPT}")


def test_tab_indents_at_the_start_of_a_line(terminal: TerminalCommand) -> None:
    assert "\n42" in terminal.run_block("if True:\r\x08\x08\x08\x08\tprint(6 * 7)", "")


# answers


def test_getpass_hides_the_answer(terminal: TerminalCommand) -> None:
    terminal.run_block("import getpass")
    terminal.type_keys("word = getpass.getpass('Pass' + 'word? ')\r")
    terminal.wait_for("Password?")
    terminal.type_keys("tiger\r")
    assert "tiger" not in terminal.wait_for(f"\n{PROMPT}")
    assert "5" in terminal.run_block("len(word)")


# interrupts and time


def test_ctrl_c_shows_the_interrupted_line(terminal: TerminalCommand) -> None:
    terminal.run_block("import time")
    terminal.run_block("def wait():", "print('beg' + 'un')", "time.sleep(1000)", "")
    terminal.type_keys("wait()\r")
    terminal.wait_for("begun")
    terminal.type_keys("\x03")
    shown = terminal.wait_for(f"\n{PROMPT}")
    assert "KeyboardInterrupt" in shown
    assert "time.sleep(1000)" in shown
    assert "_on_interrupt" not in shown


def test_repl_has_no_time_limit_unless_asked() -> None:
    assert "[default: none]" in run_command("repl", "--help").stdout
    done = run_command("repl", "--timeout", "1", given="import time; time.sleep(60)\n")
    assert (done.returncode, notes(done.stderr)[-1]) == (
        124,
        "Timeout: the time limit of 1 s, see --timeout; exit code 124",
    )


# what is shown


def test_colours_reach_the_terminal_and_end_with_the_block(terminal: TerminalCommand) -> None:
    escape = "chr(27)"
    terminal.run_block(f"print({escape} + '[31mred', {escape} + '[2Jcleared')")
    assert "\x1b[31mred" in terminal.output
    assert "\x1b[2Jcleared" not in terminal.output
    assert re.search(r"cleared\s*\x1b\[0m", terminal.output)
    terminal.run_block("1/0")
    assert re.search(r"\x1b\[[0-9;]*m1/0|\x1b\[[0-9;]*m[^\n]*ZeroDivisionError", terminal.output)


def test_help_explains_when_a_block_is_run(terminal: TerminalCommand) -> None:
    shown = terminal.run_block(":help")
    assert "empty line" in shown
    assert "Tab completes" in shown


# displays


def run_displays(*arguments: str) -> list[str]:
    script = "from IPython.display import HTML, Image\ndisplay(HTML('<p>'))\n"
    script += f"display(Image({IMAGE}))\ndisplay(Image({IMAGE}))\n"
    done = run_command("repl", *arguments, given=script)
    assert done.returncode == 0, done.stderr
    return [note.removeprefix("created ").split(" (")[0] for note in notes(done.stderr)]


def test_images_have_a_folder_of_their_own_and_short_names(cwd: Path) -> None:
    assert run_displays() == ["images/1.png", "images/2.png"]
    assert sorted(path.name for path in (cwd / "images").iterdir()) == ["1.png", "2.png"]
    assert run_displays() == ["images/3.png", "images/4.png"]
    assert run_displays("--images", "other/plots") == ["other/plots/1.png", "other/plots/2.png"]


def test_images_in_the_work_folder_are_named_once(cwd: Path) -> None:
    assert run_displays("--work-dir", ".") == ["images/1.png", "images/2.png"]
    assert [path.name for path in cwd.iterdir()] == ["images"]


def test_code_cannot_redirect_the_images(cwd: Path) -> None:
    (cwd.parent / "outside").mkdir()
    script = "import os\nos.symlink('../outside', 'images')\nfrom IPython.display import Image\n"
    done = run_command("repl", "--work-dir", ".", given=f"{script}display(Image({IMAGE}))\n")
    assert "cannot be saved in" in done.stderr
    assert list((cwd.parent / "outside").iterdir()) == []
    done = run_command("repl", "--images", "coding/a/b", given="1\n")
    assert done.returncode == 3
    assert "Use a folder outside the work folder with --images" in done.stderr
