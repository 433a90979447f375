"""The question whether code may run says how long it is: blank lines can hide its start."""

from __future__ import annotations

import pytest

from tests.cli.chat.test_terminal import QUESTION, chat

pytestmark = pytest.mark.usefixtures("sandbox")

BLOCKS = {
    "Run this (1 line)?": "```python\nprint(1)\n```\n",
    "Run this (202 lines, 5 pages)?": "```python\nprint(1)\n" + "\n" * 200 + "print(2)\n```\n",
    "Run these 2 blocks (2 lines)?": "```python\nprint(1)\n```\nand\n```sh\necho 2\n```\n",
}


@pytest.mark.parametrize("question", BLOCKS)
def test_the_question_says_how_long_the_code_is(question: str) -> None:
    with chat(BLOCKS[question], arguments=("task",)) as (terminal, _):
        assert question in terminal.wait_for(QUESTION)
