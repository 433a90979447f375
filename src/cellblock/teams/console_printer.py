"""How the console writes: plainly, or with colours in a terminal."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console as RichConsole
from rich.syntax import Syntax

from ..models.image import Image

# What moves the cursor, or tells the terminal to do something; "\t", "\n" and "\r" do not.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_FENCED = re.compile(r"^(`{3,}|~{3,}) *([\w+-]*)[^\n]*\n(.*?)^\1 *$\n?", re.MULTILINE | re.DOTALL)


class PlainPrinter:
    """Write text as it is."""

    shows_live_output = False

    def __init__(self) -> None:
        self._pictures = _PictureFolder()

    async def write(self, text: str) -> None:
        """Write `text` and nothing else."""
        # In a thread, because a terminal or a pipe may be slow to read.
        await asyncio.to_thread(print, text, end="", flush=True)

    async def write_header(self, title: str) -> None:
        """Write the line that introduces a message."""
        await self.write(f"{'-' * 10} {title} {'-' * 10}\n")

    async def write_message(self, text: str) -> None:
        """Write the text of a message."""
        await self.write(f"{text}\n")

    async def write_pictures(self, images: Sequence[Image], paths: Sequence[Path] = ()) -> None:
        """Save `images`, and write their paths and `paths`."""
        for path in [*map(self._pictures.save, images), *paths]:
            await self.write(f"[Image: {path}]\n")


class TerminalPrinter(PlainPrinter):
    """Write colours, and highlight code."""

    shows_live_output = True

    def __init__(self, *, inline_images: bool) -> None:
        super().__init__()
        self._rich = RichConsole(file=sys.stdout, highlight=False, soft_wrap=True)
        self._inline_images = inline_images and os.environ.get("TERM_PROGRAM") == "iTerm.app"

    async def write(self, text: str) -> None:
        """Write `text` without its escape sequences: a model or a program wrote it."""
        await super().write(_without_controls(text))

    async def write_header(self, title: str) -> None:
        """Write the line that introduces a message."""
        line = f"{'-' * 10} {_without_controls(title)} {'-' * 10}"
        await asyncio.to_thread(self._rich.print, line, style="bold cyan", markup=False)

    async def write_message(self, text: str) -> None:
        """Write the text of a message, with its fenced code highlighted."""
        for language, part in split_code(text):
            if language is None:
                await self.write(part)
                continue
            code = _without_controls(part).removesuffix("\n")
            syntax = Syntax(code, language, theme="ansi_dark", background_color="default")
            await asyncio.to_thread(self._rich.print, syntax)
        await self.write("" if text.endswith("\n") else "\n")

    async def write_pictures(self, images: Sequence[Image], paths: Sequence[Path] = ()) -> None:
        """Show `images` if the terminal can; save them, and write all paths."""
        if self._inline_images:
            for image in images:
                await super().write(f"\x1b]1337;File=inline=1:{image.to_base64()}\a\n")
        await super().write_pictures(images, paths)


def _without_controls(text: str) -> str:
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def split_code(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield the parts of `text`: (language, code) for fenced code, (None, text) for the rest."""
    end = 0
    for match in _FENCED.finditer(text):
        if match.start() > end:
            yield None, text[end : match.start()]
        yield match[2] or "text", match[3]
        end = match.end()
    if end < len(text):
        yield None, text[end:]


class _PictureFolder:
    """A temporary folder for pictures, made for the first one. It stays: the user opens it."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._count = 0

    def save(self, image: Image) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="cellblock-images-"))
        self._count += 1
        suffix = image.mime_type.rpartition("/")[2].partition("+")[0]
        path = self._folder / f"image-{self._count}.{suffix}"
        path.write_bytes(image.data)
        return path
