"""A conversation whose command is killed goes on later, and nobody believes that its code ended."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.chat.model_service import answer
from tests.cli.chat.test_terminal import PROMPT, QUESTION, chat

pytestmark = pytest.mark.usefixtures("sandbox")

NEVER_ENDS = (
    "First\n\n```python\nprint('kept')\n```\nthen\n\n"
    "```python\nimport time\nprint('be' + 'gun', flush=True)\ntime.sleep(600)\n```\n"
)


@pytest.mark.parametrize("name", ["notes.md", "notes.ipynb"])
def test_a_resumed_conversation_says_that_the_last_code_never_ended(name: str) -> None:
    with chat(NEVER_ENDS, arguments=("--save", name, "Wait.")) as (terminal, _):
        terminal.wait_for(QUESTION)
        terminal.type_keys("y")
        terminal.wait_for("begun")
        terminal.send_signal(signal.SIGKILL)
    with chat("I see.", arguments=("--resume", name)) as (terminal, service):
        terminal.wait_for("the last code never ended, because the command was killed")
        terminal.wait_for(PROMPT)
        terminal.type_keys("Go on.\r")
        terminal.wait_for("I see.")
        task, _, output, message = [text for _, text in service.messages()[1:]]
        assert (task, message) == ("Wait.", "Go on.")
        assert "kept" in output
        assert "The code never ended: the program that ran it was killed." in output


def test_a_task_is_saved_before_its_first_answer() -> None:
    waiting = answer("It is", hangs=True)
    with chat(waiting, arguments=("--save", "notes.md", "What is it?")) as (terminal, _):
        terminal.wait_for("\nIt")
        terminal.send_signal(signal.SIGKILL)
    assert "What is it?" in Path("notes.md").read_text()
    with chat(arguments=("--resume", "notes.md")) as (terminal, _):
        terminal.wait_for("you> What is it?")
