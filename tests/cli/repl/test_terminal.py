"""What the REPL does for a person: Tab, hidden answers, colours, interrupted lines, images."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.cli_process import notes, run_command
from tests.cli.terminal_process import PROMPT, TerminalCommand

pytestmark = pytest.mark.usefixtures("live")

IMAGE = "b'\\x89PNG\\r\\n\\x1a\\n' + bytes(64)"


# completion


def test_tab_completes_names_keys_files_commands_and_checkpoints(terminal: TerminalCommand) -> None:
    terminal.run_block("class Thing: number = 1")
    terminal.run_block("thing, table = Thing(), {'column': 1}")
    terminal.run_block("open('measurements.csv', 'w').close()")
    for typed, rest in (
        ("thing.numb", "er"),
        ("thi", "ng"),
        ("table['col", "umn"),
        ("open('measure", "ments.csv"),
        (":vari", "ables"),
    ):
        terminal.type_keys(f"{typed}\t")
        terminal.wait_for(rest)
        terminal.type_keys("\x03")
        terminal.wait_for(f"\n{PROMPT}")
    terminal.run_block(":checkpoint before")
    terminal.type_keys(":restore bef\t")
    terminal.wait_for("ore")
    terminal.wait_for("ore")  # first in `:restore`
    terminal.type_keys("\r")
    assert "as they were at checkpoint before" in terminal.wait_for(f"\n{PROMPT}")


# answers


def test_answers_colours_help_and_indents_of_a_terminal(terminal: TerminalCommand) -> None:
    terminal.run_block("import getpass")
    terminal.type_keys("word = getpass.getpass('Pass' + 'word? ')\r")
    terminal.wait_for("Password?")
    terminal.type_keys("tiger\r")
    assert "tiger" not in terminal.wait_for(f"\n{PROMPT}")
    assert "5" in terminal.run_block("len(word)")
    escape = "chr(27)"
    terminal.run_block(f"print({escape} + '[31mred', {escape} + '[2Jcleared')")
    assert "\x1b[31mred" in terminal.output
    assert "\x1b[2Jcleared" not in terminal.output
    assert re.search(r"cleared\s*\x1b\[0m", terminal.output)
    terminal.run_block("1/0")
    assert re.search(r"\x1b\[[0-9;]*m1/0|\x1b\[[0-9;]*m[^\n]*ZeroDivisionError", terminal.output)
    assert str(list(range(50))) in terminal.run_block("list(range(50))")  # 200 columns
    shown = terminal.run_block(":help")
    assert "empty line" in shown
    assert "Tab completes" in shown
    # Tab indents at the start of a line.
    assert "\n42" in terminal.run_block("if True:\r\x08\x08\x08\x08\tprint(6 * 7)", "")


def test_load_edit_and_paste_use_the_files_editor_and_clipboard_of_the_person(cwd: Path) -> None:
    (cwd / "own.py").write_text("x = 6\nif x:\n    print(x * 7)\n")
    programs = cwd / "programs"
    programs.mkdir()
    (programs / "wl-paste").write_text("#!/bin/sh\nprintf 'print(x + 40)\\n'\n")
    (programs / "wl-paste").chmod(0o700)
    environment = {"EDITOR": "sed -i s/7/8/", "PATH": f"{programs}:{os.environ['PATH']}"}
    with TerminalCommand("repl", environment=environment) as terminal:
        terminal.wait_for(PROMPT)
        terminal.type_keys("%load own.py\r")
        terminal.wait_for("print(x * 7)")  # typed, and not run
        terminal.type_keys("\r\r")
        assert "\n42" in terminal.wait_for(f"\n{PROMPT}")
        assert "\n48" in terminal.run_block("%edit")  # the last block
        assert "\n48" in terminal.run_block("%edit own.py")
        assert "\n46" in terminal.run_block("%paste")
        assert "No such file" in terminal.run_block("%load gone.py")
        assert "name a file" in terminal.run_block("%load")
        terminal.run_block("open('made.py', 'w').write('print(x * 9)')")
        terminal.type_keys("%load made.py\r")
        terminal.wait_for("print(x * 9)")


# interrupts and time


def test_repl_has_no_time_limit_unless_asked() -> None:
    assert "[default: none]" in run_command("repl", "--help").stdout
    done = run_command("repl", "--timeout", "1", given="import time; time.sleep(60)\n")
    assert (done.returncode, notes(done.stderr)[-1]) == (
        124,
        "Timeout: the time limit of 1 s, see --timeout; exit code 124",
    )


# what is shown


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
    assert run_displays("--work-dir", ".") == ["images/3.png", "images/4.png"]
    assert run_displays("--images", "other/plots") == ["other/plots/1.png", "other/plots/2.png"]
    assert sorted(path.name for path in cwd.iterdir()) == ["images", "other"]


def test_code_cannot_redirect_the_images(cwd: Path) -> None:
    (cwd.parent / "outside").mkdir()
    script = "import os\nos.symlink('../outside', 'images')\nfrom IPython.display import Image\n"
    done = run_command("repl", "--work-dir", ".", given=f"{script}display(Image({IMAGE}))\n")
    assert "cannot be saved in" in done.stderr
    assert list((cwd.parent / "outside").iterdir()) == []
    done = run_command("repl", "--images", "coding/a/b", given="1\n")
    assert done.returncode == 3
    assert "Use a folder outside the work folder with --images" in done.stderr
