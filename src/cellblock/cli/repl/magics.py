"""IPython's magics that need the person's files, editor or clipboard, which the sandbox lacks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

from ...errors import WorkspaceError
from ...executors.workspace.workspace import Workspace
from ...text_files import UnreadableText, decode_python
from ..terminal.editor import EditorError, edit_text
from .commands import ReplCommandError

_NAMES = ("%load", "%edit", "%paste")
_CLIPBOARDS = (
    ("wl-paste", "--no-newline"),
    ("xclip", "-out", "-selection", "clipboard"),
    ("xsel", "--output", "--clipboard"),
    ("pbpaste",),
)


def is_magic(text: str) -> bool:
    """Return True if the line `text` is one of `%load`, `%edit` and `%paste`."""
    return "\n" not in text.strip() and text.split(maxsplit=1)[0] in _NAMES


async def code_of_magic(text: str, last: str, folder: str, environment: Mapping[str, str]) -> str:
    """Return the code that a magic stands for.

    `%load FILE` is the file, `%edit [FILE]` what the editor makes of it or of the `last` block, and
    `%paste` the clipboard. Files are looked for in the work folder `folder`, then in the current
    one. Raise `ReplCommandError` if there is no code.
    """
    name, *rest = text.split(maxsplit=1)
    path = rest[0].strip() if rest else ""
    try:
        if name == "%load" and not path:
            raise ReplCommandError("name a file: %load FILE")
        code = await _clipboard(environment) if name == "%paste" else last
        if path and name != "%paste":
            code = await asyncio.to_thread(_read, path, folder)
        if name == "%edit":
            code = await edit_text(code, ".py", environment)
    except (EditorError, UnreadableText, OSError) as error:
        raise ReplCommandError(str(error)) from error
    if not code.strip():
        raise ReplCommandError("there is no code")
    return code


def _read(path: str, folder: str) -> str:
    try:
        data, _ = Workspace(Path(folder)).read(path)
    except (WorkspaceError, ValueError):  # it is not there, or elsewhere
        data = Path(path).expanduser().read_bytes()
    return decode_python(data, path)


async def _clipboard(environment: Mapping[str, str]) -> str:
    path = environment.get("PATH")
    command = next((entry for entry in _CLIPBOARDS if shutil.which(entry[0], path=path)), None)
    if command is None:
        names = ", ".join(entry[0] for entry in _CLIPBOARDS)
        raise ReplCommandError(f"paste with your terminal's keys, or install one of {names}")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    output, error = await process.communicate()
    if process.returncode:
        reason = error.decode(errors="replace").strip()
        raise ReplCommandError(f"{command[0]} cannot read the clipboard: {reason}")
    return output.decode(errors="replace")
