"""The commands that a person types between messages of `cellblock chat`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.model_service import ModelService, model_service
from tests.cli.chat.test_terminal import PROMPT, QUESTION, chat
from tests.cli.cli_process import run_command
from tests.models.http_service import Reply, json_reply

pytestmark = pytest.mark.usefixtures("sandbox")
TOO_LONG = Reply(
    body=json.dumps({"error": {"message": "maximum context length is 9 tokens"}}).encode(),
    status=400,
)


def texts(service: ModelService) -> list[str]:
    """Return the texts that the model was shown last, without the system message."""
    return [text for _, text in service.messages()[1:]]


@pytest.mark.parametrize("help_command", [":help", "/help"])
def test_help_lists_the_commands_and_is_no_message(help_command: str) -> None:
    with chat("Hello.", arguments=("task",)) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(f"{help_command}\r")
        for name in (":retry", ":undo", ":compact", ":clear", ":model NAME", ":save FILE", ":quit"):
            terminal.wait_for(name)
        assert service.request_count == 1


def test_a_message_may_begin_with_a_path() -> None:
    with chat("Hello.", "A folder.", arguments=("task",)) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys("/tmp is what?\r")
        terminal.wait_for("A folder.")
        assert texts(service)[-1] == "/tmp is what?"


def test_undo_takes_the_last_message_back() -> None:
    with chat("One.", "Two.", "Three.", arguments=("first",)) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        terminal.wait_for(PROMPT)
        terminal.type_keys(":undo\r")
        terminal.wait_for("taken back: second")
        terminal.wait_for(PROMPT)
        terminal.type_keys("third\r")
        terminal.wait_for("Three.")
        assert texts(service) == ["first", "One.", "third"]


def test_retry_asks_again() -> None:
    with chat("One.", "Other.", arguments=("first",)) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys("/retry\r")
        terminal.wait_for("Other.")
        assert texts(service) == ["first"]


def test_clear_begins_a_new_conversation_and_keeps_the_old_file(cwd: Path) -> None:
    with chat("One.", "Two.", arguments=("--save", "notes.md", "first")) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":clear\r")
        terminal.wait_for("notes.md has the old one")
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        assert texts(service) == ["second"]
        assert "Two." not in (cwd / "notes.md").read_text()
        assert "One." in (cwd / "notes.md").read_text()


def test_compact_goes_on_with_a_summary() -> None:
    with chat("One.", "It was about one.", "Two.", arguments=("first",)) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":compact\r")
        terminal.wait_for("It was about one.")
        terminal.wait_for("a new conversation begins")
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        assert texts(service)[1:] == ["It was about one.", "second"]
        assert texts(service)[0].startswith("Summarize our conversation")


def test_a_summary_that_fails_changes_nothing() -> None:
    refused = Reply(body=b'{"error": {"message": "no such model"}}', status=404)
    with chat("One.", refused, "Two.", arguments=("first",)) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":compact\r")
        terminal.wait_for("no such model")
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        assert texts(service) == ["first", "One.", "second"]


def test_model_chooses_another_model() -> None:
    with chat("One.", "Two.", arguments=("first",)) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":model other\r")
        terminal.wait_for("the model is other from now on")
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        assert service.models == ["local", "other"]


def test_a_conversation_that_is_too_long_goes_on_with_less(cwd: Path) -> None:
    with model_service(*["One."] * 4, TOO_LONG, "Two.") as service:
        model = ("--base-url", service.url, "--model", "local", "--approve", "never")
        run_command("chat", *model, "--save", "notes.md", "first " * 50)
        for _ in range(3):
            run_command("chat", *model, "--resume", "notes.md", "more " * 50)
        done = run_command("chat", *model, "--resume", "notes.md", "last")
        assert (done.returncode, done.stdout) == (0, "Two.\n")
        assert "longer than the model can read" in done.stderr
        assert texts(service)[-1] == "last"
        assert len(texts(service)) < 9
        assert (cwd / "notes.md").read_text().count("One.") == 4


def test_one_message_that_is_too_long_is_an_error() -> None:
    with model_service(TOO_LONG) as service:
        arguments = ("--base-url", service.url, "--model", "local", "--approve", "never")
        done = run_command("chat", *arguments, "a task")
        assert (done.returncode, service.request_count) == (3, 1)


def test_undo_after_compact_gives_the_conversation_from_before(cwd: Path) -> None:
    arguments = ("--save", "notes.md", "first")
    with chat("One.", "It was about one.", "Two.", arguments=arguments) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":compact\r")
        terminal.wait_for("a new conversation begins")
        terminal.wait_for(PROMPT)
        terminal.type_keys(":undo\r")
        terminal.wait_for("continuing the earlier conversation, saved in notes.md")
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        assert texts(service) == ["first", "One.", "second"]
        assert "second" in (cwd / "notes.md").read_text()
        terminal.wait_for(PROMPT)
        terminal.type_keys("\x04")
        terminal.wait()
    with chat("Three.", arguments=("third", "--resume")) as (terminal, service):
        terminal.wait_for("Three.")
        assert texts(service) == ["first", "One.", "second", "Two.", "third"]


def test_undo_after_clear_gives_the_conversation_from_before() -> None:
    with chat("One.", "Two.", arguments=("--no-save", "first")) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":clear\r")
        terminal.wait_for("a new conversation begins")
        terminal.wait_for(PROMPT)
        terminal.type_keys(":undo\r")
        terminal.wait_for("continuing the earlier conversation")
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        assert texts(service) == ["first", "One.", "second"]


def test_a_summary_from_a_file_is_not_taken_back() -> None:
    arguments = ("--save", "notes.md", "first")
    with chat("One.", "It was about one.", arguments=arguments) as (terminal, _):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":compact\r")
        terminal.wait_for("a new conversation begins")
        terminal.wait_for(PROMPT)
        terminal.type_keys("\x04")
        terminal.wait()
    with chat("Two.", arguments=("go on", "--resume")) as (terminal, service):
        terminal.wait_for("Two.")
        terminal.wait_for(PROMPT)
        for answer in ("taken back: go on", "only the summary is left"):
            terminal.type_keys(":undo\r")
            terminal.wait_for(answer)
            terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        assert texts(service)[1:] == ["It was about one.", "second"]


def test_retry_goes_on_from_the_request_that_failed(cwd: Path) -> None:
    code = "```python\nopen('runs', 'a').write('x')\nprint('do' + 'ne')\n```\n"
    refused = Reply(body=b'{"error": {"message": "no such model"}}', status=404)
    arguments = ("--approve", "never", "first")
    with chat(code, refused, "The end.", arguments=arguments) as (terminal, service):
        terminal.wait_for("no such model. Check --model and --base-url.")
        terminal.wait_for(PROMPT)
        terminal.type_keys(":retry\r")
        terminal.wait_for("The end.")
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
        terminal.wait_for(PROMPT)
        terminal.type_keys(":retry\r")
        terminal.wait_for("The end.")
        assert texts(service) == ["first"]


def test_retry_asks_for_other_code_than_the_refused_one() -> None:
    code = "```python\nprint(1)\n```\n"
    with chat(code, "The end.", arguments=("first",)) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.press_until("n", "Why not?")
        terminal.type_keys("\r")
        terminal.wait_for(PROMPT)
        terminal.type_keys(":retry\r")
        terminal.wait_for("The end.")
        assert texts(service) == ["first"]


def test_a_refused_block_and_a_message_are_joined_for_a_server_that_needs_it() -> None:
    code = "```python\nprint(1)\n```\n"
    text = "Conversation roles must alternate user/assistant/user/assistant/..."

    def refuse(body: Any) -> Reply | None:
        roles = [message["role"] for message in body["messages"]]
        is_refused = any(first == second for first, second in pairwise(roles))
        return json_reply({"error": {"message": text}}, 400) if is_refused else None

    with chat(code, "The end.", arguments=("first",), refuse=refuse) as (terminal, service):
        terminal.wait_for(QUESTION)
        terminal.press_until("n", "Why not?")
        terminal.type_keys("\r")
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("The end.")
        assert texts(service)[-1].endswith("\n\nsecond")


def test_resume_finds_the_file_that_save_named(cwd: Path) -> None:
    with chat("One.", "Two.", arguments=("first",)) as (terminal, _):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":save notes.md\r")
        terminal.wait_for("saved in notes.md")
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        terminal.wait_for(PROMPT)
    with model_service("Three.") as service:
        model = ("--base-url", service.url, "--model", "local", "--approve", "never")
        done = run_command("chat", *model, "third", "--resume")
        assert done.returncode == 0
        assert texts(service) == ["first", "One.", "second", "Two.", "third"]
    assert "Three." in (cwd / "notes.md").read_text()


def test_a_conversation_that_another_terminal_has_open_is_not_written(cwd: Path) -> None:
    with chat("One.", "Two.", arguments=("--save", "notes.md", "first")) as (terminal, _):
        terminal.wait_for(PROMPT)
        with model_service("Other.") as service:
            model = ("--base-url", service.url, "--model", "local", "--approve", "never")
            done = run_command("chat", *model, "more", "--resume", "notes.md")
            assert (done.returncode, service.request_count) == (2, 0)
            assert "notes.md is open in another terminal" in done.stderr
            assert "--save OTHER.md" in done.stderr
            copy = run_command("chat", *model, "more", "--resume", "--save", "copy.md")
            assert copy.returncode == 0
            assert texts(service) == ["first", "One.", "more"]
        assert "Other." not in (cwd / "notes.md").read_text()


def test_ctrl_c_at_the_prompt_says_how_to_end() -> None:
    with chat(arguments=()) as (terminal, _):
        terminal.wait_for(PROMPT)
        terminal.type_keys("\x03")
        terminal.wait_for("Ctrl-D ends the conversation")
        terminal.wait_for(PROMPT)


@pytest.mark.parametrize("name", ["notes.md", "notes.ipynb"])
def test_resume_uses_the_options_with_which_the_conversation_ran(name: str) -> None:
    code = "```python\nx = 1\n```\n```python\nprint('x' in globals())\n```\n"
    with model_service(code, "One.", code, "Two.", "Three.") as service:
        model = ("--base-url", service.url, "--model", "local", "--approve", "never")
        options = ("--executor", "sandbox", "--timeout", "77", "--memory", "500M")
        run_command("chat", *model, *options, "--save", name, "first")
        assert "False" in service.messages()[-1][1]
        done = run_command("chat", *model, "second", "--resume", name)
        assert "it ran with --executor sandbox --timeout 77 --memory 500M" in done.stderr
        assert "False" in service.messages()[-1][1]
        given = ("--executor", "session", "--timeout", "60")
        done = run_command("chat", *model, *given, "third", "--resume", name)
        assert "it ran with --memory 500M" in done.stderr


def test_a_file_cannot_ask_for_less_protection(cwd: Path) -> None:
    with model_service("One.", "Two.") as service:
        model = ("--base-url", service.url, "--model", "local", "--approve", "never")
        options = ("--network", "--work-dir", ".")
        run_command("chat", *model, *options, "--save", "notes.md", "first")
        done = run_command("chat", *model, "second", "--resume", "notes.md")
        assert "it ran with --network, --work-dir, which no file can ask for" in done.stderr
        assert "There is no network" in service.messages()[0][1]
