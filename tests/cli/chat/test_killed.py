"""A conversation whose command is killed goes on later, and nobody believes that its code ended."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from click import Context

from cellblock.cli.chat.main import command
from cellblock.cli.chat.settings import ChatSettings
from cellblock.cli.chat.setup import ChatSetup
from cellblock.cli.chat.transcripts.entries import (
    AnswerEntry,
    BlockRun,
    Entry,
    RunEntry,
    UserEntry,
)
from cellblock.cli.chat.transcripts.file import write_transcript
from tests.cli.chat.model_service import answer
from tests.cli.chat.test_terminal import PROMPT, chat, press, say
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.usefixtures("sandbox")

NEVER_ENDS = (
    "First\n\n```python\nprint('kept')\n```\nthen\n\n"
    "```python\nimport time\nprint('be' + 'gun', flush=True)\ntime.sleep(600)\n```\n"
)


@pytest.mark.parametrize("name", exhaustive(["notes.ipynb", "notes.md"]))
def test_a_resumed_conversation_says_that_the_last_code_never_ended(name: str) -> None:
    with chat(NEVER_ENDS, arguments=("--save", name, "Wait.")) as (terminal, _):
        press(terminal, "y", "begun")
        terminal.send_signal(signal.SIGKILL)
    with chat("I see.", arguments=("--resume", name)) as (terminal, service):
        terminal.wait_for("the last code never ended, because the command was killed")
        say(terminal, "Go on.", "I see.")
        task, _, output, message = [text for _, text in service.messages()[1:]]
        assert (task, message) == ("Wait.", "Go on.")
        assert "kept" in output
        assert "The code never ended: the program that ran it was killed." in output


def test_the_latest_conversation_of_a_folder_goes_on_without_a_name(tmp_path: Path) -> None:
    for folder, task in (("other", "Something else?"), ("here", "What is it?")):
        Path(folder).mkdir()
        with (
            contextlib.chdir(folder),
            chat(answer("It is", hangs=True), arguments=(task,)) as (terminal, _),
        ):
            terminal.wait_for("\nIt")
            terminal.send_signal(signal.SIGKILL)
    chats = tmp_path / "state" / "cellblock" / "chats"
    assert [oct(path.stat().st_mode & 0o777) for path in (chats, *chats.iterdir())] == [
        "0o700",
        *["0o600"] * 2,
    ]
    with contextlib.chdir("other"), chat("A cat.", arguments=("--resume",)) as (terminal, _):
        terminal.wait_for("the last message has no answer, because the command ended")
        terminal.wait_for("you> Something else?")
        say(terminal, "Go on.", "A cat.", PROMPT)
    assert len(list(chats.iterdir())) == 2
    with contextlib.chdir("here"), chat(arguments=("--resume",)) as (terminal, _):
        terminal.wait_for("you> What is it?")


def test_a_resumed_conversation_says_what_was_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user, code = UserEntry("Go."), AnswerEntry("```python\n1\n```")
    run = RunEntry((BlockRun("1\n", "python", outcome="ok"),))
    ends: dict[str, list[Entry]] = {
        "last message has no answer": [user],
        "answer was cut off": [user, AnswerEntry("It", is_complete=False)],
        "code of the last answer did not run": [user, code],
        "not read the last output": [user, code, run],
    }
    said = list[str]()
    for number, entries in enumerate([*ends.values(), [user, AnswerEntry("Done.")]]):
        path = tmp_path / f"{number}.md"
        write_transcript(path, entries)
        with Context(command) as context:
            arguments = ["--resume", str(path), "--base-url", "http://[::1]", "--model", "m"]
            command.parse_args(context, [*arguments, "Go."])
            ChatSetup(ChatSettings(**context.params)).note_resumed()
        said.append(capsys.readouterr().err)
    assert [end for end, text in zip(ends, said, strict=False) if end not in text] == []
    assert said[-1] == ""


def test_no_save_leaves_no_file(tmp_path: Path) -> None:
    with chat("A cat.", arguments=("--no-save", "What is it?")) as (terminal, _):
        terminal.wait_for("A cat.")
        terminal.wait_for(PROMPT)
    assert not (tmp_path / "state" / "cellblock" / "chats").exists()
    with chat(arguments=("--resume",)) as (terminal, _):
        terminal.wait_for("there is no conversation of this folder to continue")


@pytest.mark.slow
def test_only_the_newest_conversations_are_kept(tmp_path: Path) -> None:
    chats = tmp_path / "state" / "cellblock" / "chats"
    chats.mkdir(parents=True)
    for number in range(60):
        (chats / f"{number}.md").touch()
        os.utime(chats / f"{number}.md", (number, number))
    with chat("A cat.", arguments=("What is it?",)) as (terminal, _):
        terminal.wait_for("A cat.")
        terminal.wait_for(PROMPT)
    kept = {path.name for path in chats.iterdir()}
    assert len(kept) == 50
    assert {f"{number}.md" for number in range(11, 60)} < kept
