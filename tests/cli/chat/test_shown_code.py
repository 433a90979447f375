"""A key approves only code that was shown whole. Otherwise the key shows it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from cellblock import CodeBlock
from cellblock.cli.chat.approval.code_prompt import CodePrompt
from cellblock.cli.chat.languages import blocks_of
from cellblock.cli.chat.terminal import ChatTerminal
from cellblock.cli.terminal.interrupts import ReplInterrupts
from tests.cli.chat.chat_parts import chat_output

STEPS = "".join(f"step {number}\n" for number in range(15))
CODE = "```python\nimport os\n\nprint(os)\n```\n"
HIDDEN = {
    "indented": f"Plan:\n\n    ~~~\n{STEPS}\n{CODE}{STEPS}",
    "thought": f"<think>\n~~~\n</think>\n{STEPS}\n{CODE}{STEPS}",
    "comment": f"<!--\n~~~\n-->\n{STEPS}\n{CODE}{STEPS}",
    "quoted": f"> ~~~\n\n{STEPS}\n{CODE}{STEPS}",
    "no tag": f"```\n{STEPS}{CODE[:-4]}{'x = 1;' * 9}\n{STEPS}```\n",
    "long": "```python\n" + "x = 1\n" * 40 + "```\n",
    "other": "```python\nif 0:\n    import os\n\n    print(os)\n```\n"
    f"    ~~~\n{STEPS}\n{CODE}{STEPS}",
}
SEEN = {
    "plain": f"Plan:\n{CODE}",
    "list": "- a\n\n  ```python\n  import os\n\n  print(os)\n  ```\n",
    "quote": "> ```python\n> import os\n>\n> print(os)\n> ```\n",
    "tabs": "```python\nif 1:\n\tprint(1)\t# hm\n```\n",
    "line ends": "```python\r# note\rprint(1)\r\nx = 1\r\n```\r\n",
    "marks": "```python\nprint('\u202e')\n```\n",
    "blank lines": "```python\n\n\nx = 1\n\n\n```\n",
    "string": '```python\nx = """\n  a\n\n"""\n```\n',
}


class Keys:
    """A terminal at which somebody always presses y. Counts the questions."""

    def __init__(self) -> None:
        self.count = 0

    async def read_key(self, question: str, keys: str) -> str:
        assert ("[s]how all" in question) == ("s" in keys)
        self.count += 1
        return "y"


def questions(answer: str, blocks: list[CodeBlock], piece: int) -> int:
    """Return after how many questions `blocks` run, which are those of `answer`."""

    async def ask() -> int:
        output, keys = chat_output("."), Keys()
        output.is_terminal = True
        for start in range(0, len(answer), piece):
            await output.write_answer(answer[start : start + piece])
        await output.end_answer()
        interrupts = ReplInterrupts(output.note)
        prompt = CodePrompt(cast(ChatTerminal, keys), output, interrupts)
        assert (await prompt(blocks, []))[0].approved
        return keys.count

    return asyncio.run(ask())


@pytest.mark.parametrize("piece", [5, 100_000])
def test_code_that_was_not_shown_is_shown_before_it_is_approved(
    piece: int, monkeypatch: pytest.MonkeyPatch, cwd: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    for texts, expected in ((HIDDEN, 2), (SEEN, 1)):
        found = {name: questions(text, blocks_of(text), piece) for name, text in texts.items()}
        assert found == dict.fromkeys(texts, expected)
    # What runs is not what the answer says.
    assert questions(SEEN["plain"], [CodeBlock("import os\nprint(os)\n", "python")], piece) == 2
