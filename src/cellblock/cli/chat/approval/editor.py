"""Edit code in the user's editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....blocks import CodeBlock
from ....fences import fenced
from ..languages import blocks_of

_EDITORS = ("sensible-editor", "nano", "vim", "vi")
_SUFFIXES = {"python": ".py", "sh": ".sh", "bash": ".sh"}


class EditorError(Exception):
    """The code was not edited. The message says why."""


def find_editor(environment: Mapping[str, str]) -> list[str]:
    """Return the command of the editor: $VISUAL, $EDITOR, or one that is installed.

    Raise `EditorError` if there is none.
    """
    for name in ("VISUAL", "EDITOR"):
        if command := environment.get(name, "").strip():
            try:
                return shlex.split(command)
            except ValueError as error:
                raise EditorError(f"${name} is not a command: {error}") from error
    path = environment.get("PATH")
    found = next((editor for editor in _EDITORS if shutil.which(editor, path=path)), None)
    if found is None:
        raise EditorError("there is no editor: set EDITOR, such as EDITOR=nano")
    return [found]


async def edit(blocks: Sequence[CodeBlock], environment: Mapping[str, str]) -> list[CodeBlock]:
    """Return `blocks` as the user left them. Several blocks are one Markdown file.

    Raise `EditorError` if the editor fails or no code is left.
    """
    editor = find_editor(environment)
    with tempfile.TemporaryDirectory(prefix="cellblock-edit-") as folder:
        is_single = len(blocks) == 1
        suffix = _SUFFIXES.get(blocks[0].language, ".txt") if is_single else ".md"
        path = Path(folder) / f"code{suffix}"
        text = blocks[0].code if is_single else _to_markdown(blocks)
        await asyncio.to_thread(path.write_text, text, encoding="utf-8", errors="replace")
        await _run([*editor, os.fspath(path)])
        try:
            text = await asyncio.to_thread(path.read_text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EditorError(f"the edited file cannot be read: {error}") from error
    edited = [CodeBlock(text, blocks[0].language)] if is_single else blocks_of(text)
    if not any(block.code.strip() for block in edited):
        raise EditorError("there is no code left")
    return edited


async def _run(command: list[str]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(*command)
    except OSError as error:
        raise EditorError(f"{command[0]} cannot be started: {error.strerror}") from error
    if code := await process.wait():
        end = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise EditorError(f"{command[0]} ended with {end}; the code is as it was")


def _to_markdown(blocks: Sequence[CodeBlock]) -> str:
    return "\n\n".join(fenced(block.code, block.language) for block in blocks) + "\n"
