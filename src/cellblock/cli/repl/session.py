"""Run blocks and commands in a live session, one after another, and print what happens."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import sys
from collections.abc import Iterable

from ...blocks import CodeBlock
from ...cancellation import CancellationToken
from ...errors import CellblockError
from ...events import Display, Ended, Event, FileCreated, Output, Started
from ...executors.session.print_progress import PrintProgress
from ...executors.session.sandbox import SandboxSessionCodeExecutor
from ..sizes import format_size
from ..terminal.render import Renderer, StyledText, printable_line
from ..terminal.stdio import write
from .commands import ReplCommandError, ReplCommands, is_command
from .image_viewer import ImageViewer


class ReplSession:
    """Run blocks and commands in `session`. `image_viewer` opens the images that it displays."""

    def __init__(
        self,
        session: SandboxSessionCodeExecutor,
        renderer: Renderer,
        folder: str,
        image_viewer: ImageViewer | None,
    ) -> None:
        self._session, self._renderer, self._image_viewer = session, renderer, image_viewer
        self._commands, self._folder = ReplCommands(session, folder), folder
        self.progress = PrintProgress()
        self._mid_line = False  # True if the last block left a line of stdout unfinished

    @property
    def is_closed(self) -> bool:
        """True if a command has ended the session."""
        return self._commands.has_quit

    async def execute(self, text: str, token: CancellationToken) -> int:
        """Run a block or a command and return its exit code.

        Raise `CellblockError` if the block could not be run.
        """
        if not is_command(text):
            return await self._run_block(text, token)
        try:
            answer, exit_code = await self._commands.run(text), 0
            pieces = [StyledText("stdout", f"{printable_line(line)}\n") for line in answer]
        except ReplCommandError as error:
            pieces, exit_code = list(self._renderer.note(str(error))), 1
        if pieces and pieces[0].stream == "stdout" and self._mid_line:
            pieces.insert(0, StyledText("stdout", "\n"))
            self._mid_line = False
        await asyncio.to_thread(write, pieces)
        return exit_code

    async def _run_block(self, code: str, token: CancellationToken) -> int:
        exit_code, images = 0, list[str]()
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        options = self._session.default_options
        self._session.default_options = dataclasses.replace(options, columns=columns)
        async with contextlib.aclosing(
            self._session.execute_stream([CodeBlock(code, "python")], token)
        ) as events:
            async for event in events:
                if isinstance(event, Display):
                    images += event.files
                elif isinstance(event, FileCreated):
                    if _same_path(os.path.join(self._folder, event.path), images):
                        continue  # named when the block has ended
                elif isinstance(event, Ended):
                    exit_code = event.exit_code
                    await asyncio.to_thread(write, self._image_notes(images))
                await self._show_event(event)
                await self.progress.add(event)
        self.start_new_line()
        if self._image_viewer is not None:
            self._image_viewer.open(images)
        return exit_code

    def _image_notes(self, paths: Iterable[str]) -> list[StyledText]:
        notes = list[StyledText]()
        for path in paths:
            size = format_size(os.path.getsize(path))
            notes += self._renderer.note(f"created {_shorten_path(path)} ({size})")
        return notes

    async def complete(self, text: str, cursor: int) -> tuple[int, list[str]]:
        """Return where the text to complete at `cursor` starts, and what can replace it."""
        if text.startswith(":"):
            line = text[:cursor]
            return line.rfind(" ") + 1, self._commands.complete(line)
        with contextlib.suppress(CellblockError):
            return await self._session.complete(text, cursor)
        return cursor, []

    async def _show_event(self, event: Event) -> None:
        if isinstance(event, Started):
            return
        if isinstance(event, Output) and event.stream == "stdout":
            self._mid_line = not event.text.endswith("\n")
        pieces = self._renderer.render(
            _without_repetition(event) if isinstance(event, Ended) else event
        )
        await asyncio.to_thread(write, list(pieces))

    def start_new_line(self) -> None:
        """End the line that a block left unfinished, if both streams go to the same terminal."""
        if pieces := list(self._renderer.start_new_line()):
            write(pieces)
            self._mid_line = False


def _shorten_path(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _same_path(path: str, others: Iterable[str]) -> bool:
    return os.path.abspath(path) in map(os.path.abspath, others)


def _without_repetition(ended: Ended) -> Ended:
    """Return `ended` without what the traceback or the user's Ctrl-C has shown already."""
    if ended.outcome == "cancelled":
        return dataclasses.replace(ended, message="interrupted")
    was_exception = ended.outcome == "error" and ended.exit_code == 1 and not ended.notice
    return dataclasses.replace(ended, exit_code=0) if was_exception else ended
