"""A prompt waits until the output before it is printed, however slow the terminal is."""

from __future__ import annotations

import asyncio

from cellblock import Output, Started
from cellblock.cli.terminal.input_prompter import InputPrompter
from cellblock.executors.session.print_progress import PrintProgress
from cellblock.executors.session.settings import InputPrompt


class _Screen:
    """Both the terminal that answers and the screen: writes down what happens."""

    def __init__(self) -> None:
        self.progress = PrintProgress()
        self.seen = list[str]()

    def start_new_line(self) -> None: ...

    async def read_answer(self, prompt: str, *, is_hidden: bool) -> str:
        self.seen.append(prompt)
        return "answer"

    async def show(self, text: str) -> None:
        self.seen.append(text)
        await self.progress.add(Output(0, "stdout", text))


async def _prompt_after_two_events() -> list[str]:
    screen, prompt = _Screen(), InputPrompt("name? ")
    prompt.event_count = 2
    prompter = InputPrompter(screen)
    prompter.screen = screen
    await screen.show("of an earlier block")
    await screen.progress.add(Started(0, "python"))
    asking = asyncio.create_task(prompter.read_answer(prompt))
    for text in ("a", "b"):
        for _ in range(10):  # it would ask now if it did not wait
            await asyncio.sleep(0)
        await screen.show(text)
    assert await asking == "answer"
    return screen.seen


def test_a_prompt_comes_after_all_earlier_output() -> None:
    assert asyncio.run(_prompt_after_two_events()) == ["of an earlier block", "a", "b", "name? "]
