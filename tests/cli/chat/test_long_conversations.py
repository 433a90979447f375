"""What `cellblock chat` does with more text than the model can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.cli.chat.transcripts.entries import AnswerEntry, Entry, UserEntry
from cellblock.cli.chat.transcripts.file import write_transcript
from tests.cli.chat.model_service import ask, longer_than, model_service
from tests.cli.chat.test_commands import texts
from tests.cli.chat.test_terminal import chat, say
from tests.models.http_service import Reply, stream_reply
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.usefixtures("sandbox")
ROWS = " ".join(f"row-{number}" for number in range(1000))


@pytest.mark.parametrize("says_numbers", exhaustive([True, False]))
def test_a_message_that_is_too_long_is_refused_and_the_others_go_on(says_numbers: bool) -> None:
    refuse = longer_than(1000, says_numbers=says_numbers)
    with chat("Hello.", "Two.", arguments=("hello",), refuse=refuse) as (terminal, service):
        pasted = f"\x1b[200~{ROWS}\x1b[201~"
        say(terminal, pasted, "Your message is too long for the model")
        say(terminal, "second", "Two.")
        assert texts(service) == ["hello", "Hello.", "second"]


def test_output_that_is_too_long_is_shortened_for_the_model() -> None:
    code = "```python\nprint('first', 'x' * 15_000, 'last')\n```\n"
    with model_service(code, "I see.", refuse=longer_than(1500)) as service:
        done = ask(service, "a task")
        assert done.returncode == 0
        told = "longer than the model can read: it is shown the beginning and the end"
        assert told in done.stderr
        task, block, result = texts(service)
        assert (task, block) == ("a task", code.strip())
        assert result.startswith("first xxx")
        assert "characters left out" in result
        assert "xxx last\n" in result


@pytest.mark.slow
def test_the_newest_message_stays_while_its_code_runs() -> None:
    steps = [f"```python\nprint('step {number}', 'x' * 400)\n```\n" for number in range(12)]
    with model_service(*steps, "Done.", refuse=longer_than(1200)) as service:
        done = ask(service, "the task")
        assert done.returncode == 0
        assert texts(service)[0] == "the task"
        assert texts(service)[-1].startswith("step 11")
        assert done.stderr.count("longer than the model can read") == 1


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    exhaustive([(("--context-window", "1300"), 1100), (("--model", "gpt-4"), 7000)]),
)
def test_a_line_says_that_the_context_is_nearly_full(
    arguments: tuple[str, ...], tokens: int
) -> None:
    usage = {"prompt_tokens": tokens, "completion_tokens": 1}
    code = "```python\nprint(1)\n```\n"
    end: object = {"index": 0, "delta": {"content": code}, "finish_reason": "stop"}
    with model_service(stream_reply({"choices": [end], "usage": usage}), "Done.") as service:
        done = ask(service, *arguments, "a task")
        assert "the model's context is nearly full (8" in done.stderr
        assert done.stderr.count(":compact") == 1


def test_a_summary_covers_all_of_a_long_conversation() -> None:
    tasks = [UserEntry(f"task {number} " + "word " * 200) for number in range(8)]
    pairs: list[Entry] = [entry for task in tasks for entry in (task, AnswerEntry("One."))]
    write_transcript(Path("notes.md"), pairs)
    arguments, refuse = ("--resume", "notes.md"), longer_than(1500)
    with chat("Summary.", arguments=arguments, refuse=refuse) as (terminal, service):
        say(terminal, ":compact", "a new conversation begins")
        read = str([body for body in service.bodies if refuse(body) is None])
        assert [number for number in range(8) if f"task {number} " not in read] == []


def test_a_service_that_ends_its_stream_without_a_word_says_what_to_do() -> None:
    with chat(stream_reply(), arguments=("a task",)) as (terminal, _):
        terminal.wait_for("without an answer. The conversation may be too long for the model.")
        terminal.wait_for(":retry asks again; :undo takes your message back")


def test_a_short_message_is_not_called_too_long() -> None:
    with model_service("Hello.", refuse=longer_than(50)) as service:
        done = ask(service, "a task")
        assert done.returncode == 3
        assert "Your message has only about 6 tokens, and the instructions before" in done.stderr
        assert "maximum context length is 50 tokens" in done.stderr


def test_a_broken_answer_is_not_called_too_long() -> None:
    with model_service(Reply(body=b'{"choices": [{"ind')) as service:
        done = ask(service, "a task")
        assert "sent an answer that cannot be read" in done.stderr
        assert "too long" not in done.stderr


def test_code_may_repeat_beside_other_code() -> None:
    check = "```python\nprint('ok')\n```\n"
    steps = [text for n in range(4) for text in (f"```python\nx = {n}\n```\n", check)]
    with model_service(*steps, "Done.") as service:
        assert ask(service, "a task").returncode == 0


def test_a_message_that_is_known_not_to_fit_is_not_sent() -> None:
    with model_service("Hello.") as service:
        done = ask(service, "--context-window", "1000", ROWS)
        assert (done.returncode, service.request_count) == (3, 0)
        assert "Your message is too long for the model" in done.stderr
