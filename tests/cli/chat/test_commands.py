"""The commands that a person types between messages of `cellblock chat`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cellblock.cli.chat.transcripts.entries import AnswerEntry, UserEntry
from cellblock.cli.chat.transcripts.file import write_transcript
from tests.cli.chat.model_service import ModelService, ask, model_service
from tests.cli.chat.test_terminal import PROMPT, chat, press, say
from tests.models.http_service import Reply, json_reply
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.usefixtures("sandbox")
TOO_LONG = Reply(
    body=json.dumps({"error": {"message": "maximum context length is 9 tokens"}}).encode(),
    status=400,
)
NO_SUCH_MODEL = Reply(body=b'{"error": {"message": "no such model"}}', status=404)
ONE_BLOCK = "```python\nprint(1)\n```\n"


def texts(service: ModelService) -> list[str]:
    """Return the texts that the model was shown last, without the system message."""
    return [text for _, text in service.messages()[1:]]


def test_commands_and_unknown_commands_are_no_messages() -> None:
    with chat("Hello.", "A folder.", arguments=("task",)) as (terminal, service):
        names = (":retry", ":undo", ":compact", ":clear", ":model NAME", ":save FILE", ":quit")
        for help_command in (":help", "/help"):
            say(terminal, help_command, *names)
        say(terminal, ":sve notes.md", "there is no command :sve")
        say(terminal, ":save notes.txt", ":save needs a file that ends with .md or .ipynb")
        terminal.wait_for(PROMPT)
        terminal.type_keys("\x03")
        terminal.wait_for("Ctrl-D ends the conversation")
        assert service.request_count == 1
        # A message may begin with a path.
        say(terminal, "/tmp is what?", "A folder.")
        assert texts(service)[-1] == "/tmp is what?"


def test_retry_undo_and_model_change_what_is_asked() -> None:
    replies = ("One.", "Two.", "Other.", "Three.")
    with chat(*replies, arguments=("first",)) as (terminal, service):
        say(terminal, "second", "Two.")
        say(terminal, "/retry", "Other.")
        assert texts(service) == ["first", "One.", "second"]
        say(terminal, ":undo", "taken back: second")
        say(terminal, ":model other", "the model is other from now on")
        say(terminal, "third", "Three.")
        assert texts(service) == ["first", "One.", "third"]
        assert service.models == [*["local"] * 3, "other"]


def test_clear_begins_a_new_conversation_and_keeps_the_old_file(cwd: Path) -> None:
    with chat("One.", "Two.", arguments=("--save", "notes.md", "first")) as (terminal, service):
        say(terminal, ":clear", "notes.md has the old one")
        say(terminal, "second", "Two.")
        assert texts(service) == ["second"]
        assert "Two." not in (cwd / "notes.md").read_text()
        assert "One." in (cwd / "notes.md").read_text()


def test_compact_goes_on_with_a_summary_unless_it_fails() -> None:
    replies = ("One.", NO_SUCH_MODEL, "Two.", "It was about one.", "Three.")
    with chat(*replies, arguments=("first",)) as (terminal, service):
        say(terminal, ":compact", "no such model")
        say(terminal, "second", "Two.")
        assert texts(service) == ["first", "One.", "second"]
        say(terminal, ":compact", "It was about one.", "a new conversation begins")
        say(terminal, "third", "Three.")
        assert texts(service)[1:] == ["It was about one.", "third"]
        assert texts(service)[0].startswith("Summarize our conversation")


@pytest.mark.slow
def test_a_conversation_that_is_too_long_goes_on_with_less() -> None:
    write_transcript(Path("notes.md"), [UserEntry("more " * 50), AnswerEntry("One.")] * 4)
    with model_service(TOO_LONG, "Two.") as service:
        done = ask(service, "--resume", "notes.md", "last")
        assert (done.returncode, done.stdout) == (0, "Two.\n")
        assert "longer than the model can read" in done.stderr
        assert texts(service)[-1] == "last"
        assert len(texts(service)) < 9
        assert Path("notes.md").read_text().count("One.") == 4
    with model_service(TOO_LONG) as service:
        assert (ask(service, "one message").returncode, service.request_count) == (3, 1)


@pytest.mark.slow
def test_undo_after_compact_gives_the_conversation_from_before(cwd: Path) -> None:
    arguments = ("--save", "notes.md", "first")
    with chat("One.", "It was about one.", "Two.", arguments=arguments) as (terminal, service):
        say(terminal, ":compact", "a new conversation begins")
        say(terminal, ":undo", "continuing the earlier conversation, saved in notes.md")
        say(terminal, "second", "Two.")
        assert texts(service) == ["first", "One.", "second"]
        assert "second" in (cwd / "notes.md").read_text()
        terminal.wait_for(PROMPT)
        terminal.type_keys("\x04")
        terminal.wait()
    with model_service("Three.") as service:
        assert ask(service, "third", "--resume").returncode == 0
        assert texts(service) == ["first", "One.", "second", "Two.", "third"]


def test_undo_after_clear_gives_the_conversation_from_before() -> None:
    with chat("One.", "Two.", arguments=("--no-save", "first")) as (terminal, service):
        say(terminal, ":clear", "a new conversation begins")
        say(terminal, ":undo", "continuing the earlier conversation")
        say(terminal, "second", "Two.")
        assert texts(service) == ["first", "One.", "second"]


def test_a_summary_from_a_file_is_not_taken_back() -> None:
    arguments = ("--save", "notes.md", "first")
    with chat("One.", "It was about one.", arguments=arguments) as (terminal, _):
        say(terminal, ":compact", "a new conversation begins", PROMPT)
        terminal.type_keys("\x04")
        terminal.wait()
    with chat("Two.", arguments=("go on", "--resume")) as (terminal, service):
        terminal.wait_for("Two.")
        say(terminal, ":undo", "taken back: go on")
        say(terminal, ":undo", "only the summary is left")
        say(terminal, "second", "Two.")
        assert texts(service)[1:] == ["It was about one.", "second"]


def test_retry_goes_on_from_the_request_that_failed(cwd: Path) -> None:
    code = "```python\nopen('runs', 'a').write('x')\nprint('do' + 'ne')\n```\n"
    arguments = ("--approve", "never", "first")
    with chat(code, NO_SUCH_MODEL, "The end.", arguments=arguments) as (terminal, service):
        terminal.wait_for("no such model. Check --model and --base-url.")
        say(terminal, ":retry", "The end.")
        task, block, result = texts(service)
        assert (task, block, result.split("\n")[0]) == ("first", code.strip(), "done")
        assert (cwd / "coding" / "runs").read_text() == "x"


def test_retry_asks_again_for_an_answer_that_broke_off() -> None:
    broken = Reply(
        body=b'data: {"choices": [{"index": 0, "delta": {"content": "Half"}}]}\n\n',
        content_type="text/event-stream",
    )
    with chat(broken, "The end.", arguments=("first",)) as (terminal, service):
        terminal.wait_for("before the answer was complete")
        say(terminal, ":retry", "The end.")
        assert texts(service) == ["first"]


def test_retry_asks_for_other_code_than_the_refused_one() -> None:
    with chat(ONE_BLOCK, "The end.", arguments=("first",)) as (terminal, service):
        press(terminal, "n", "Why not?")
        terminal.type_keys("\r")
        say(terminal, ":retry", "The end.")
        assert texts(service) == ["first"]


def test_a_refused_block_and_a_message_are_joined_for_a_server_that_needs_it() -> None:
    text = "Conversation roles must alternate user/assistant/user/assistant/..."

    def refuse(body: Any) -> Reply | None:
        roles = [message["role"] for message in body["messages"]]
        is_refused = any(first == second for first, second in pairwise(roles))
        return json_reply({"error": {"message": text}}, 400) if is_refused else None

    with chat(ONE_BLOCK, "The end.", arguments=("first",), refuse=refuse) as (terminal, service):
        press(terminal, "n", "Why not?")
        terminal.type_keys("\r")
        say(terminal, "second", "The end.")
        assert texts(service)[-1].endswith("\n\nsecond")


def test_save_names_a_file_that_resume_finds(cwd: Path) -> None:
    with chat("One.", "Two.", arguments=("first",)) as (terminal, _):
        say(terminal, ":save notes.ipynb", "saved in notes.ipynb")
        say(terminal, "second", "Two.", PROMPT)
    cells = json.loads((cwd / "notes.ipynb").read_text())["cells"]
    assert "".join(cells[-1]["source"]) == "### Assistant\n\nTwo."
    with model_service("Three.") as service:
        assert ask(service, "third", "--resume").returncode == 0
        assert texts(service) == ["first", "One.", "second", "Two.", "third"]
    assert "Three." in (cwd / "notes.ipynb").read_text()


def test_a_conversation_that_another_terminal_has_open_is_not_written(cwd: Path) -> None:
    with chat("One.", "Two.", arguments=("--save", "notes.md", "first")) as (terminal, _):
        terminal.wait_for(PROMPT)
        with model_service("Other.") as service:
            done = ask(service, "more", "--resume", "notes.md")
            assert (done.returncode, service.request_count) == (2, 0)
            assert "notes.md is open in another terminal" in done.stderr
            assert "--save OTHER.md" in done.stderr
            copy = ask(service, "more", "--resume", "--save", "copy.md")
            assert copy.returncode == 0
            assert texts(service) == ["first", "One.", "more"]
        assert "Other." not in (cwd / "notes.md").read_text()


@pytest.mark.parametrize("name", exhaustive(["notes.ipynb", "notes.md"]))
@pytest.mark.slow
def test_resume_uses_the_options_with_which_the_conversation_ran(name: str) -> None:
    code = "```python\nx = 1\n```\n```python\nprint('x' in globals())\n```\n"
    with model_service(code, "One.", code, "Two.", "Three.") as service:
        options = ("--executor", "sandbox", "--timeout", "77", "--memory", "500M")
        ask(service, *options, "--save", name, "first")
        assert "False" in service.messages()[-1][1]
        done = ask(service, "second", "--resume", name)
        assert "it ran with --executor sandbox --timeout 77 --memory 500M" in done.stderr
        assert "False" in service.messages()[-1][1]
        given = ("--executor", "session", "--timeout", "60")
        done = ask(service, *given, "third", "--resume", name)
        assert "it ran with --memory 500M" in done.stderr


def test_a_file_cannot_ask_for_less_protection() -> None:
    with model_service("One.", "Two.") as service:
        ask(service, "--network", "--work-dir", ".", "--save", "notes.md", "first")
        done = ask(service, "second", "--resume", "notes.md")
        assert "it ran with --network, --work-dir, which no file can ask for" in done.stderr
        assert "There is no network" in service.messages()[0][1]
