"""`cellblock chat` and `run` name what happens to files that no block has written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock import CodeBlock
from cellblock.cli.chat.approval.approver import risks
from cellblock.cli.own_files import OwnFiles
from cellblock.runtime.linux.safe_folder import remove_tree
from tests.cli.chat.model_service import ask, model_service
from tests.cli.chat.test_terminal import HELLO, QUESTION, SECOND, chat, press, say
from tests.cli.cli_process import notes, run_locally
from tests.suite.tiers import exhaustive

NAMED = "```python\n# filename: sales.csv\nprint('ran')\n```\n"
REPLACED = "sales.csv is replaced: it was in the work folder, and no block wrote it"


def found(code: str, language: str) -> list[str]:
    """Return the risks of code beside the file `data.csv`."""
    Path("folder").mkdir(exist_ok=True)
    Path("folder", "data.csv").touch()
    return risks([CodeBlock(code, language)], OwnFiles("."))


RISKY = {
    "python": [
        "import os\nos.remove('folder/data.csv')",
        "from os import unlink as u\nu(name)",
        "import shutil\nshutil.rmtree('/workspace/folder')",
        "from pathlib import Path\nPath('folder/data.csv').unlink()",
        "[path.unlink() for path in folder.iterdir()]",
        "import os\nos.system('rm -rf folder')",
        "open('folder/data.csv', 'w')",
        "table.to_csv('folder/data.csv')",
    ],
    "sh": [
        "rm -rf ./*",
        "cd folder && rm $NAME",
        "find . -name '*.csv' -delete",
        "git clean -fdx",
        "> folder/data.csv",
        "cp /dev/null folder/data.csv",
    ],
    "javascript": ["require('fs').rmSync('folder')\nfs.rmSync('folder')"],
}
HARMLESS = {
    "import os\nos.remove('made.csv')": "python",
    "open('folder/data.csv')\nopen('new.csv', 'w')\n{1}.remove(1)": "python",
    "echo 1 > new.csv\necho 2 >> folder/data.csv\nls 2>&1 >/dev/null": "sh",
    "rm new.csv": "sh",
}


def test_code_that_deletes_or_replaces_files_of_the_person_looks_risky() -> None:
    harmless: list[str] = []
    for language, codes in RISKY.items():
        for code in codes:
            kinds = {risk.split(": ")[1].split()[0] for risk in found(code, language)}
            harmless += [] if kinds & {"delete", "overwrite"} else [code]
    assert harmless == []


def test_code_that_deletes_or_replaces_no_file_of_the_person_does_not() -> None:
    risky = {code: found(code, language) for code, language in HARMLESS.items()}
    assert [code for code, named in risky.items() if named] == []


def test_pipes_and_deep_folders_of_code_hold_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "sales.csv")
    monkeypatch.chdir(tmp_path)
    for _ in range(3_000):
        os.mkdir("d")
        os.chdir("d")
    files = OwnFiles(str(tmp_path))
    files.remember()
    assert files.was_there("sales.csv")
    assert files.replaced_by([CodeBlock(NAMED.split("\n", 1)[1], "python")]) == {0: "sales.csv"}
    remove_tree(str(tmp_path / "d"))


def test_files_of_blocks_may_be_deleted() -> None:
    Path("made.csv").touch()
    own_files = OwnFiles(".", ["made.csv"])
    for code in ("rm made.csv", "rm -rf *"):
        assert risks([CodeBlock(code, "sh")], own_files) == []


@pytest.mark.usefixtures("sandbox")
def test_risky_asks_before_files_of_the_person_are_deleted_or_replaced(cwd: Path) -> None:
    (cwd / "sales.csv").write_text("1,2\n")
    replies = (NAMED, "```sh\nrm -rf ./*\n```\n")
    arguments = ("--approve", "risky", "--work-dir", ".", "task")
    with chat(*replies, arguments=arguments) as (terminal, _):
        terminal.wait_for(f"look at line 1: {REPLACED}")
        press(terminal, "n", "Why not?")
        terminal.type_keys("delete it\r")
        terminal.wait_for("look at line 1: delete (rm -rf ./*)")
        terminal.wait_for(QUESTION)
        assert (cwd / "sales.csv").read_text() == "1,2\n"
        terminal.type_keys("y")
        terminal.wait_for("deleted sales.csv, which was in the work folder before")


@pytest.mark.usefixtures("sandbox")
def test_a_line_says_which_file_of_the_person_was_replaced_without_a_question(cwd: Path) -> None:
    (cwd / "sales.csv").write_text("1,2\n")
    with model_service(NAMED, NAMED.replace("ran", "again"), "Done.") as service:
        assert ask(service, "--work-dir", ".", "task").stderr.count(REPLACED) == 1


@pytest.mark.usefixtures("sandbox")
def test_a_file_that_the_block_before_wrote_is_not_said_to_be_of_no_block(cwd: Path) -> None:
    (cwd / "sales.csv").write_text("1,2\n")
    before = "```sh\necho 3 >> sales.csv\n```\n"
    first = f"{before}\n{NAMED}"
    json = "```json\n// filename: sales.csv\n[]\n```\n"
    with model_service(first, json, json.replace("[]", "[1]"), "Done.") as service:
        replaced = [note for note in ask(service, "--work-dir", ".", "task").stderr.splitlines()]
    told = [note for note in replaced if "is replaced" in note]
    assert [note.partition("folder, and ")[2] for note in told] == ["a block has changed it since"]


@pytest.mark.usefixtures("sandbox")
def test_a_hidden_file_that_a_block_wrote_is_no_file_of_the_person(cwd: Path) -> None:
    hidden = "```python\n# filename: .env\nprint('sec' + 'ond')\n```\n"
    arguments = ("--work-dir", ".", "--approve", "risky", "task")
    replies = ("```sh\ntouch .x; mv .x .env; echo 1 > .env\n```", hidden)
    with chat(*replies, arguments=arguments) as (terminal, _):
        assert QUESTION not in terminal.wait_for("\nsecond")


@pytest.mark.slow
def test_run_names_a_file_that_no_block_wrote(cwd: Path) -> None:
    named = {
        before: REPLACED in notes(run_named_block(cwd, before))
        for before in (b"1,2\n", b"# filename: sales.csv\nold\n", None, b"")
    }
    assert [before for before, is_named in named.items() if is_named] == [b"1,2\n"]


def run_named_block(cwd: Path, before: bytes | None) -> str:
    """Return what is told of a block that writes `sales.csv`, which has the bytes `before`."""
    (cwd / "sales.csv").unlink(missing_ok=True)
    if before is not None:
        (cwd / "sales.csv").write_bytes(before)
    done = run_locally("--work-dir", ".", given=NAMED)
    assert done.returncode == 0
    return done.stderr


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    ("approve", "key", "command"),
    exhaustive(
        [("always", "a", ":clear"), ("always", "a", ":approve"), ("once", "y", ":clear")], keep=2
    ),
)
def test_an_approval_of_all_code_can_be_taken_back(approve: str, key: str, command: str) -> None:
    arguments = ("--approve", approve, "task")
    with chat(HELLO, "Done.", SECOND, arguments=arguments) as (terminal, _):
        press(terminal, key, *[":approve asks again"] * (key == "a"))
        say(terminal, command, "you are asked before code runs" if key == "a" else "")
        say(terminal, "more", QUESTION)


@pytest.mark.usefixtures("sandbox")
def test_approve_chooses_when_to_ask() -> None:
    with chat("Hello.", SECOND, arguments=("task",)) as (terminal, _):
        say(terminal, ":approve often", ":approve takes one of always, once, risky, never")
        say(terminal, ":approve never", "code runs without a question")
        say(terminal, "more")
        assert QUESTION not in terminal.wait_for("\nsecond")


@pytest.mark.usefixtures("sandbox")
def test_the_file_of_the_conversation_is_no_file_of_a_block() -> None:
    code = "```sh\necho 1 >> log.txt\n```\n"
    with model_service(code, code.replace("1", "2"), "Done.") as service:
        done = ask(service, "--work-dir", ".", "--save", "notes.ipynb", "task")
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
