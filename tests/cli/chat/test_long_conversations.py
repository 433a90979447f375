"""What `cellblock chat` does with more text than the model can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.chat.model_service import longer_than, model_service
from tests.cli.chat.test_commands import texts
from tests.cli.chat.test_terminal import PROMPT, chat
from tests.cli.cli_process import run_command
from tests.models.http_service import stream_reply

pytestmark = pytest.mark.usefixtures("sandbox")
ROWS = " ".join(f"row-{number}" for number in range(1000))


@pytest.mark.parametrize("says_numbers", [True, False])
def test_a_message_that_is_too_long_is_refused_and_the_others_go_on(says_numbers: bool) -> None:
    refuse = longer_than(1000, says_numbers=says_numbers)
    with chat("Hello.", "Two.", arguments=("hello",), refuse=refuse) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(f"\x1b[200~{ROWS}\x1b[201~\r")
        terminal.wait_for("Your message is too long for the model")
        terminal.wait_for(PROMPT)
        terminal.type_keys("second\r")
        terminal.wait_for("Two.")
        assert texts(service) == ["hello", "Hello.", "second"]


def test_output_that_is_too_long_is_shortened_for_the_model(cwd: Path) -> None:
    code = "```python\nprint('first', 'x' * 15_000, 'last')\n```\n"
    with model_service(code, "I see.", refuse=longer_than(1500)) as service:
        arguments = ("--base-url", service.url, "--model", "local", "--approve", "never")
        done = run_command("chat", *arguments, "a task")
        assert done.returncode == 0
        assert "longer than the model can read: it is shown the beginning and the end" in (
            done.stderr
        )
        task, block, result = texts(service)
        assert (task, block) == ("a task", code.strip())
        assert result.startswith("first xxx")
        assert "characters left out" in result
        assert "xxx last\n" in result


def test_the_newest_message_stays_while_its_code_runs() -> None:
    steps = [f"```python\nprint('step {number}', 'x' * 400)\n```\n" for number in range(12)]
    with model_service(*steps, "Done.", refuse=longer_than(1200)) as service:
        arguments = ("--base-url", service.url, "--model", "local", "--approve", "never")
        done = run_command("chat", *arguments, "the task")
        assert done.returncode == 0
        assert texts(service)[0] == "the task"
        assert texts(service)[-1].startswith("step 11")
        assert done.stderr.count("longer than the model can read") == 1


@pytest.mark.parametrize("arguments", [("--context-window", "1300"), ("--model", "gpt-4")])
def test_a_line_says_that_the_context_is_nearly_full(arguments: tuple[str, ...]) -> None:
    usage = {"prompt_tokens": 7000, "completion_tokens": 1}
    if arguments[0] == "--context-window":
        usage["prompt_tokens"] = 1100
    code = "```python\nprint(1)\n```\n"
    end: object = {"index": 0, "delta": {"content": code}, "finish_reason": "stop"}
    with model_service(stream_reply({"choices": [end], "usage": usage}), "Done.") as service:
        options = ("--base-url", service.url, "--model", "local", "--approve", "never")
        done = run_command("chat", *options, *arguments, "a task")
        assert "the model's context is nearly full (8" in done.stderr
        assert done.stderr.count(":compact") == 1


def test_a_summary_covers_all_of_a_long_conversation(cwd: Path) -> None:
    with model_service("One.") as service:
        model = ("--base-url", service.url, "--model", "local", "--approve", "never")
        run_command("chat", *model, "--save", "notes.md", "task 0 " + "word " * 200)
        for number in range(1, 8):
            text = f"task {number} " + "word " * 200
            run_command("chat", *model, "--resume", "notes.md", text)
    arguments, refuse = ("--resume", "notes.md"), longer_than(1500)
    with chat("Summary.", arguments=arguments, refuse=refuse) as (terminal, service):
        terminal.wait_for(PROMPT)
        terminal.type_keys(":compact\r")
        terminal.wait_for("a new conversation begins")
        read = str([body for body in service.bodies if refuse(body) is None])
        assert [number for number in range(8) if f"task {number} " not in read] == []


def test_a_service_that_ends_its_stream_without_a_word_says_what_to_do() -> None:
    with chat(stream_reply(), arguments=("a task",)) as (terminal, _):
        terminal.wait_for("without an answer. The conversation may be too long for the model.")
        terminal.wait_for(":retry asks again; :undo takes your message back")


def test_the_same_output_again_and_again_ends_the_turn() -> None:
    with model_service("```python\nprint('same')\n```\n") as service:
        arguments = ("--base-url", service.url, "--model", "local", "--approve", "never")
        done = run_command("chat", *arguments, "a task")
        assert (done.returncode, service.request_count) == (1, 3)
        assert "the model repeats code whose output stays the same" in done.stderr


def test_code_may_repeat_beside_other_code() -> None:
    check = "```python\nprint('ok')\n```\n"
    steps = [text for n in range(4) for text in (f"```python\nx = {n}\n```\n", check)]
    with model_service(*steps, "Done.") as service:
        arguments = ("--base-url", service.url, "--model", "local", "--approve", "never")
        assert run_command("chat", *arguments, "a task").returncode == 0


def test_a_message_that_is_known_not_to_fit_is_not_sent() -> None:
    with model_service("Hello.") as service:
        options = ("--base-url", service.url, "--model", "local", "--approve", "never")
        done = run_command("chat", *options, "--context-window", "1000", ROWS)
        assert (done.returncode, service.request_count) == (3, 0)
        assert "Your message is too long for the model" in done.stderr
