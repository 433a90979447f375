"""What the command prints: answers, code, its output, pictures and notes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from ...blocks import CodeBlock
from ...events import Ended, Event, Output, Started
from ...executors.session.print_progress import PrintProgress
from ...models.image import Image
from ...visible_text import visible
from ..advice import Advisor
from ..terminal.render import Renderer
from ..terminal.stdio import have_same_destination, write
from .answer_text import AnswerText, highlight, wrap
from .folding import FoldedOutput, head_lines
from .pictures.protocols import PictureProtocol, find_protocol
from .shown_code import ShownCode
from .transcripts.entries import CodePicture

_MAX_SHOWN_DIFF = 20  # lines, of files of the person that a run changed
_MAX_WIDTH = 100  # of prose: longer lines are hard to read


class ChatOutput:
    """Print to a terminal with colours and wrapped lines, or plainly to anything else.

    folder        the work folder
    advisor       knows the limits and the network of the blocks
    """

    def __init__(self, *, folder: str, advisor: Advisor, has_colours: bool) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._folder, self._advisor, self._has_colours = folder, advisor, has_colours
        self._same_destination = have_same_destination()
        self._rich = Console(
            file=sys.stdout, highlight=False, soft_wrap=True, no_color=not has_colours
        )
        self._answer: AnswerText | None = None
        self._plain_answer = ""
        self._shown, self._has_answer_ended = ShownCode(), False
        self._renderer = self._make_renderer([], lambda _: False)
        self._protocol: PictureProtocol | None = None
        self._is_protocol_known = False
        self._has_code_output = False  # since the last answer
        self._is_mid_line = False  # True if code left a line of stdout unfinished
        self.progress = PrintProgress()
        self._fold: FoldedOutput | None = None  # of the running block, at a terminal

    def _make_renderer(
        self, blocks: Sequence[CodeBlock], was_there: Callable[[str], bool]
    ) -> Renderer:
        return Renderer(
            blocks,
            folder=self._folder,
            same_destination=self._same_destination,
            advisor=self._advisor,
            has_colours=self._has_colours,
            was_there=was_there,
        )

    def note(self, text: str) -> None:
        """Print a note for each line of `text`, on separate lines."""
        for line in text.splitlines():
            for part in self._wrapped_note(line):
                write(self._renderer.note(part))

    @contextmanager
    def waiting(self, text: str, seconds: float) -> Generator[asyncio.TimerHandle]:
        """Print `text` as a note after `seconds`, unless the context or the timer ends before."""
        timer = asyncio.get_running_loop().call_later(seconds, self.note, text)
        try:
            yield timer
        finally:
            timer.cancel()

    def _wrapped_note(self, line: str) -> list[str]:
        """Return the lines of a note, which a terminal would break inside words."""
        if not self.is_terminal:
            return [line]
        return wrap(line, max(20, self._columns() - len("--- ")))

    # messages and answers

    async def show_message(self, speaker: str, text: str) -> None:
        """Print a message that was not typed here."""
        await self._print([Text(f"{speaker}> ", "bold")])
        if self.is_terminal:
            self._answer = self._new_answer(len(f"{speaker}> "))
        await self.write_answer(text)
        await self.end_answer()

    async def write_answer(self, piece: str) -> None:
        """Print a piece of an answer. It begins on a new line, below an empty one."""
        if self._has_code_output:
            self._has_code_output = False
            self.start_new_line()
            await asyncio.to_thread(click.echo, "\n" if self._is_mid_line else "")
            self._is_mid_line = False
        if self._has_answer_ended:
            self._shown, self._has_answer_ended = ShownCode(), False
        if not self.is_terminal:
            self._plain_answer = piece
            self._shown.add_answer(visible(piece))
            await asyncio.to_thread(click.echo, visible(piece), nl=False)
            return
        if self._answer is None:
            self._answer = self._new_answer()
        await self._print(self._recorded(self._answer.add(piece)))

    def _recorded(self, texts: Iterable[Text]) -> Iterator[Text]:
        for text in texts:
            yield text
            self._shown.add_answer(text.plain)

    def _new_answer(self, column: int = 0) -> AnswerText:
        size = shutil.get_terminal_size()
        width, code_lines = min(size.columns, _MAX_WIDTH), head_lines(size.lines)
        return AnswerText(width, column, code_lines=code_lines)

    async def end_answer(self) -> None:
        """End the line of the answer."""
        if self._answer is not None:
            await self._print(self._recorded(self._answer.end()))
            self._shown.is_folded |= self._answer.has_folded
            self._answer = None
        elif self._plain_answer and not self._plain_answer.endswith("\n"):
            click.echo()
        self._plain_answer, self._has_answer_ended = "", True

    async def show_code(self, blocks: Sequence[CodeBlock]) -> None:
        """Print `blocks`, highlighted."""
        for block in blocks:
            text = highlight(visible(block.code), block.language)
            fence = [Text(f"```{block.language}\n", "dim"), text, Text("\n```\n", "dim")]
            await self._print(fence)
        self._shown.add_blocks(blocks)

    def has_shown(self, blocks: Sequence[CodeBlock]) -> bool:
        """Return True if each of `blocks` is on the screen whole, as a part of the last answer."""
        return all(map(self._shown.has, blocks))

    async def show_diff(self, lines: Sequence[str], max_lines: int = _MAX_SHOWN_DIFF) -> None:
        """Print the first lines of a diff, highlighted, at a terminal."""
        if not (self.is_terminal and lines):
            return
        self.start_new_line()
        text = highlight(visible("\n".join(lines[:max_lines])), "diff")
        await self._print([text.append("\n")])
        if len(lines) > max_lines:
            self.note(f"{len(lines) - max_lines} more lines: :diff shows all")

    async def show_output(self, text: str) -> None:
        """Print all output of a block again."""
        await asyncio.to_thread(click.echo, visible(text), nl=not text.endswith("\n"))

    async def _print(self, texts: Iterable[Text]) -> None:
        def print_all() -> None:
            for text in texts:
                self._rich.print(text, end="")

        await asyncio.to_thread(print_all)

    def _columns(self) -> int:
        return shutil.get_terminal_size().columns

    # code

    def start_blocks(self, blocks: Sequence[CodeBlock], was_there: Callable[[str], bool]) -> None:
        """Record that `blocks` run next. `was_there` knows the files in the work folder."""
        self._renderer = self._make_renderer(blocks, was_there)

    async def write_event(self, event: Event) -> None:
        """Print what running code did."""
        self._has_code_output = True
        if isinstance(event, Started):
            self._fold = self._new_fold()
        elif isinstance(event, Ended):
            await asyncio.to_thread(self._end_fold)
        if isinstance(event, Output) and event.stream == "stdout":
            self._is_mid_line = not event.text.endswith("\n")
        await asyncio.to_thread(write, list(self._renderer.render(self._folded(event))))
        await self.progress.add(event)

    def _new_fold(self) -> FoldedOutput | None:
        if not (self.is_terminal and self._same_destination):
            return None
        size = shutil.get_terminal_size()
        return FoldedOutput(size.lines, size.columns)

    def _folded(self, event: Event) -> Event:
        """Return `event` with what is printed of its output."""
        if self._fold is None or not isinstance(event, Output):
            return event
        shown = self._fold.add(event.text)
        if self._fold.is_folded:
            self._advisor.add_output(event.text)
        return replace(event, text=shown)

    def _end_fold(self) -> None:
        """Print the end of the output that is held back."""
        if self._fold is None or not self._fold.is_folded:
            return
        folded, tail = self._fold.end()
        if folded:
            self.note(f"{folded} lines are folded: :show shows all")
        write(self._renderer.render(Output(0, "stdout", tail)))
        self._is_mid_line = not tail.endswith("\n")

    async def show_pictures(self, pictures: Sequence[CodePicture]) -> None:
        """Print the path of each picture, and show it if the terminal can."""
        self.start_new_line()
        for picture in pictures:
            if not _is_below(self._folder, picture.path):  # else listed with the other files
                self.note(f"created {_shorten_path(picture.path)}")
            if picture.image is not None and self.is_terminal:
                await asyncio.to_thread(self._show, picture.image)

    def _show(self, image: Image) -> None:
        """Show `image` in the terminal, if that is possible."""
        if not self._is_protocol_known:
            self._protocol, self._is_protocol_known = find_protocol(os.environ), True
        if self._protocol is not None and (sequence := self._protocol.encode(image)):
            sys.stdout.write(f"{sequence}\n")
            sys.stdout.flush()

    def start_new_line(self) -> None:
        """End the line that a block left unfinished, if both streams go to the same terminal.

        Before, print the end of output that is held back.
        """
        self._end_fold()
        if pieces := list(self._renderer.start_new_line()):
            write(pieces)
            self._is_mid_line = False


def _is_below(folder: str, path: str) -> bool:
    return Path(path).absolute().is_relative_to(Path(folder).absolute())


def _shorten_path(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
