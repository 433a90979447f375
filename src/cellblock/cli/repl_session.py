"""A conversation with a live session: cells that run and commands, one after the other, with what they say shown."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time

from ..blocks import CodeBlock
from ..cancellation import CancellationToken
from ..events import Display, Ended, Event, Output, Started
from ..executors.session.sandbox import SandboxSessionCodeExecutor
from .image_viewer import Pictures
from .render import Piece, Renderer, harmless
from .repl_commands import CommandError, Commands, is_command
from .stdio import write

_STILL = 0.02  # seconds without news after which all is written that was on its way


class Conversation:
    """Say blocks and commands to `session`. `pictures`: what opens those that are shown."""

    def __init__(
        self,
        session: SandboxSessionCodeExecutor,
        renderer: Renderer,
        folder: str,
        pictures: Pictures | None,
    ) -> None:
        self._session, self._renderer, self._pictures = session, renderer, pictures
        self._commands = Commands(session, folder)
        self._written = 0.0  # when the last piece of output was; infinity while one is
        self._mid_line = False  # whether the last cell left standard output in the middle of a line

    @property
    def is_over(self) -> bool:
        """Whether a command has ended it."""
        return self._commands.has_quit

    async def say(self, text: str, token: CancellationToken) -> int:
        """Run a cell, or do a command, and give its exit code. Raises our errors when it could not be run."""
        if not is_command(text):
            return await self._cell(text, token)
        try:
            answer, exit_code = await self._commands.do(text), 0
            pieces = [Piece("stdout", f"{harmless(line)}\n") for line in answer]
        except CommandError as error:
            pieces, exit_code = list(self._renderer.note(str(error))), 1
        if pieces and pieces[0].stream == "stdout" and self._mid_line:
            pieces.insert(0, Piece("stdout", "\n"))
            self._mid_line = False
        await asyncio.to_thread(write, pieces)
        return exit_code

    async def _cell(self, code: str, token: CancellationToken) -> int:
        exit_code, shown = 0, list[str]()
        async with contextlib.aclosing(
            self._session.execute_stream([CodeBlock(code, "python")], token)
        ) as events:
            async for event in events:
                self._written = float("inf")
                if isinstance(event, Display):
                    shown += event.files
                elif isinstance(event, Ended):
                    exit_code = event.exit_code
                await self._show(event)
                self._written = time.monotonic()
        self.fresh_line()
        if self._pictures is not None:
            self._pictures.open(shown)
        return exit_code

    async def _show(self, event: Event) -> None:
        if isinstance(event, Started):
            return
        if isinstance(event, Output) and event.stream == "stdout":
            self._mid_line = not event.text.endswith("\n")
        pieces = self._renderer.pieces(
            _with_news_only(event) if isinstance(event, Ended) else event
        )
        await asyncio.to_thread(write, list(pieces))

    def fresh_line(self) -> None:
        """End the line that a cell left unfinished, where both streams are shown."""
        if pieces := list(self._renderer.fresh_line()):
            write(pieces)
            self._mid_line = False

    async def settle(self) -> None:
        """Wait until what a running cell has written is shown: a question comes another way than output."""
        while time.monotonic() < self._written + _STILL:  # noqa: ASYNC110 - silence is no event
            await asyncio.sleep(_STILL / 4)


def _with_news_only(ended: Ended) -> Ended:
    """Give the end without what the user has done, or the traceback above it says already."""
    if ended.outcome == "cancelled":
        return dataclasses.replace(ended, message="interrupted")
    was_exception = ended.outcome == "error" and ended.exit_code == 1 and not ended.notice
    return dataclasses.replace(ended, exit_code=0) if was_exception else ended
