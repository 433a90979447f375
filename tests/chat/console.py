"""A console for chats: answers by script, keeps what is printed."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from cellblock.chat import IOStream


class ScriptedConsole(IOStream):
    """Types `answers` one after the other, then the input ends."""

    def __init__(self, answers: Sequence[str] = ()) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []
        self.text = ""

    def print(self, *objects: Any, sep: str = " ", end: str = "\n", flush: bool = False) -> None:
        self.text += sep.join(str(each) for each in objects) + end

    def input(self, prompt: str = "", *, password: bool = False) -> str:
        self.prompts.append(prompt)
        if not self.answers:
            raise EOFError("EOF when reading a line")
        return self.answers.pop(0)


@contextmanager
def console(*answers: str) -> Generator[ScriptedConsole]:
    """Use a `ScriptedConsole` within the block."""
    stream = ScriptedConsole(answers)
    with IOStream.set_default(stream):
        yield stream
