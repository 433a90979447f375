"""`cellblock chat` and `run` name what happens to files that no block has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import CodeBlock
from cellblock.cli.chat.approval.approver import risks
from cellblock.cli.own_files import OwnFiles
from tests.cli.chat.model_service import model_service
from tests.cli.chat.test_terminal import HELLO, PROMPT, QUESTION, chat
from tests.cli.cli_process import notes, run_command, run_locally

SECOND = "```sh\necho sec''ond\n```\n"
NAMED = "```python\n# filename: sales.csv\nprint('ran')\n```\n"
REPLACED = "sales.csv is replaced: it was in the work folder, and no block wrote it"


def found(code: str, language: str) -> list[str]:
    """Return the risks of code beside the file `data.csv`."""
    Path("folder").mkdir()
    Path("folder", "data.csv").touch()
    return risks([CodeBlock(code, language)], OwnFiles("."))


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("import os\nos.remove('folder/data.csv')", "python"),
        ("from os import unlink as u\nu(name)", "python"),
        ("import shutil\nshutil.rmtree('/workspace/folder')", "python"),
        ("from pathlib import Path\nPath('folder/data.csv').unlink()", "python"),
        ("[path.unlink() for path in folder.iterdir()]", "python"),
        ("import os\nos.system('rm -rf folder')", "python"),
        ("open('folder/data.csv', 'w')", "python"),
        ("table.to_csv('folder/data.csv')", "python"),
        ("rm -rf ./*", "sh"),
        ("cd folder && rm $NAME", "sh"),
        ("find . -name '*.csv' -delete", "sh"),
        ("git clean -fdx", "sh"),
        ("> folder/data.csv", "sh"),
        ("cp /dev/null folder/data.csv", "sh"),
        ("require('fs').rmSync('folder')\nfs.rmSync('folder')", "javascript"),
    ],
)
def test_code_that_deletes_or_replaces_files_of_the_person_looks_risky(
    code: str, language: str
) -> None:
    assert any(
        text.split(": ")[1].split()[0] in ("delete", "overwrite") for text in found(code, language)
    )


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("import os\nos.remove('made.csv')", "python"),
        ("open('folder/data.csv')\nopen('new.csv', 'w')\n{1}.remove(1)", "python"),
        ("echo 1 > new.csv\necho 2 >> folder/data.csv\nls 2>&1 >/dev/null", "sh"),
        ("rm new.csv", "sh"),
    ],
)
def test_code_that_deletes_or_replaces_no_file_of_the_person_does_not(
    code: str, language: str
) -> None:
    assert found(code, language) == []


def test_files_of_blocks_may_be_deleted() -> None:
    Path("made.csv").touch()
    own_files = OwnFiles(".", ["made.csv"])
    for code in ("rm made.csv", "rm -rf *"):
        assert risks([CodeBlock(code, "sh")], own_files) == []


@pytest.mark.usefixtures("sandbox")
def test_risky_asks_before_files_of_the_person_are_deleted(cwd: Path) -> None:
    (cwd / "data.csv").touch()
    arguments = ("--approve", "risky", "--work-dir", ".", "task")
    with chat("```sh\nrm -rf ./*\n```\n", arguments=arguments) as (terminal, _):
        terminal.wait_for("look at line 1: delete (rm -rf ./*)")
        terminal.wait_for(QUESTION)
        assert (cwd / "data.csv").exists()
        terminal.type_keys("y")
        terminal.wait_for("deleted data.csv, which was in the work folder before")


@pytest.mark.usefixtures("sandbox")
def test_the_question_names_a_file_of_the_person_that_a_block_replaces(cwd: Path) -> None:
    (cwd / "sales.csv").write_text("1,2\n")
    arguments = ("--approve", "risky", "--work-dir", ".", "task")
    with chat(NAMED, arguments=arguments) as (terminal, _):
        terminal.wait_for(f"look at line 1: {REPLACED}")
        terminal.wait_for(QUESTION)
        assert (cwd / "sales.csv").read_text() == "1,2\n"


@pytest.mark.usefixtures("sandbox")
def test_a_line_says_which_file_of_the_person_was_replaced_without_a_question(cwd: Path) -> None:
    (cwd / "sales.csv").write_text("1,2\n")
    with model_service(NAMED, NAMED.replace("ran", "again"), "Done.") as service:
        model = ("--base-url", service.url, "--model", "local", "--approve", "never")
        done = run_command("chat", *model, "--work-dir", ".", "task")
        assert done.stderr.count(REPLACED) == 1


@pytest.mark.parametrize(
    ("before", "is_named"),
    [(b"1,2\n", True), (b"# filename: sales.csv\nold\n", False), (None, False), (b"", False)],
)
def test_run_names_a_file_that_no_block_wrote(
    cwd: Path, before: bytes | None, is_named: bool
) -> None:
    if before is not None:
        (cwd / "sales.csv").write_bytes(before)
    done = run_locally("--work-dir", ".", given=NAMED)
    assert done.returncode == 0
    assert (REPLACED in notes(done.stderr)) is is_named


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize("command", [":clear", ":approve"])
def test_an_approval_of_all_code_can_be_taken_back(command: str) -> None:
    with chat(HELLO, "Done.", SECOND, arguments=("task",)) as (terminal, _):
        terminal.wait_for(QUESTION)
        terminal.type_keys("a")
        terminal.wait_for(":approve asks again")
        terminal.wait_for(PROMPT)
        terminal.type_keys(f"{command}\r")
        terminal.wait_for("you are asked before code runs")
        terminal.wait_for(PROMPT)
        terminal.type_keys("more\r")
        terminal.wait_for(QUESTION)


@pytest.mark.usefixtures("sandbox")
def test_clear_asks_again_after_once() -> None:
    arguments = ("--approve", "once", "task")
    with chat(HELLO, "Done.", SECOND, arguments=arguments) as (terminal, _):
        terminal.wait_for(QUESTION)
        terminal.type_keys("y")
        terminal.wait_for(PROMPT)
        terminal.type_keys(":clear\r")
        terminal.wait_for(PROMPT)
        terminal.type_keys("more\r")
        terminal.wait_for(QUESTION)


@pytest.mark.usefixtures("sandbox")
def test_approve_chooses_when_to_ask() -> None:
    with chat("Hello.", SECOND, arguments=("task",)) as (terminal, _):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":approve often\r")
        terminal.wait_for(":approve takes one of always, once, risky, never")
        terminal.type_keys(":approve never\r")
        terminal.wait_for("code runs without a question")
        terminal.wait_for(PROMPT)
        terminal.type_keys("more\r")
        assert QUESTION not in terminal.wait_for("\nsecond")


@pytest.mark.usefixtures("sandbox")
def test_the_file_of_the_conversation_is_no_file_of_a_block(cwd: Path) -> None:
    code = "```sh\necho 1 >> log.txt\n```\n"
    with model_service(code, code.replace("1", "2"), "Done.") as service:
        model = ("--base-url", service.url, "--model", "local", "--approve", "never")
        done = run_command("chat", *model, "--work-dir", ".", "--save", "notes.ipynb", "task")
        files = [note for note in notes(done.stderr) if note.startswith(("created", "changed"))]
        assert files == ["created ./log.txt (2 bytes)", "changed ./log.txt (4 bytes)"]
        assert "notes.ipynb" not in str(service.messages())


def test_run_tells_new_files_from_those_that_it_changed(cwd: Path) -> None:
    (cwd / "old.txt").write_text("old\n")
    code = "```sh\necho 1 >> old.txt\necho 1 >> new.txt\n```\n```sh\necho 2 >> new.txt\n```\n"
    done = run_locally("--work-dir", ".", given=code)
    files = [note for note in notes(done.stderr) if note.startswith(("created", "changed"))]
    assert [note.split(" (")[0] for note in files] == [
        "created ./new.txt",
        "changed ./old.txt",
        "changed ./new.txt",
    ]
