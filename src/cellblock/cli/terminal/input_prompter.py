"""Answer calls of `input()` in running code with a line from the terminal."""

from __future__ import annotations

import asyncio
from typing import Protocol

from ...cancellation import CancellationToken
from ...executors.displays import strip_terminal_codes
from ...executors.session.print_progress import PrintProgress
from ...executors.session.settings import InputPrompt


class ReadsAnswers(Protocol):
    """A terminal."""

    async def read_answer(self, prompt: str, *, is_hidden: bool) -> str:
        """Return a line. Raise `KeyboardInterrupt` on Ctrl-C and `EOFError` on Ctrl-D."""
        ...


class Screen(Protocol):
    """What prints the output of the running code."""

    @property
    def progress(self) -> PrintProgress:
        """What of the running block is printed."""
        ...

    def start_new_line(self) -> None:
        """End the line that the code left unfinished."""
        ...


class InputPrompter:
    """Read the answers at `terminal`. `token` is that of the running code.

    `screen` is None until there is one.
    """

    def __init__(self, terminal: ReadsAnswers) -> None:
        self._terminal = terminal
        self._loop = asyncio.get_running_loop()
        self.screen: Screen | None = None
        self.token = CancellationToken()

    async def read_answer(self, prompt: InputPrompt) -> str:
        """Return the answer to `prompt`. Runs on another event loop than the terminal."""
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(self._read_at_prompt(prompt), self._loop)
        )

    async def _read_at_prompt(self, prompt: InputPrompt) -> str:
        assert self.screen is not None
        await self.screen.progress.wait(prompt.event_count)
        self.screen.start_new_line()
        try:
            text = strip_terminal_codes(prompt)
            return await self._terminal.read_answer(text, is_hidden=prompt.hidden)
        except (KeyboardInterrupt, EOFError):
            self.token.cancel()  # the session cannot receive "no answer"
            return ""
