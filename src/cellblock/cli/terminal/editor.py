"""Edit text in the user's editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

_EDITORS = ("sensible-editor", "nano", "vim", "vi")


class EditorError(Exception):
    """The text was not edited. The message says why."""


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


async def edit_text(text: str, suffix: str, environment: Mapping[str, str]) -> str:
    """Return `text` as the user left it, in a file with `suffix`. Raise `EditorError`."""
    editor = find_editor(environment)
    with tempfile.TemporaryDirectory(prefix="cellblock-edit-") as folder:
        path = Path(folder) / f"code{suffix}"
        await asyncio.to_thread(path.write_text, text, encoding="utf-8", errors="replace")
        await _run([*editor, os.fspath(path)])
        try:
            return await asyncio.to_thread(path.read_text, encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EditorError(f"the edited file cannot be read: {error}") from error


async def _run(command: list[str]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(*command)
    except OSError as error:
        raise EditorError(f"{command[0]} cannot be started: {error.strerror}") from error
    if code := await process.wait():
        end = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise EditorError(f"{command[0]} ended with {end}; the code is as it was")
