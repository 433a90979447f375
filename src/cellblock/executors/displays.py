"""MIME bundles: what a live interpreter showed, as files beside the output and as text in it."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from ..errors import WorkspaceError

_BASE64 = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "application/pdf": "pdf",
}
_TEXT = {"image/svg+xml": "svg", "text/html": "html"}
_SAVED = _BASE64 | _TEXT
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Colours, moves of the cursor, titles and links of terminals.
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
_UNSAFE = {0: "\ufffd", 0x1B: "\ufffd", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}


class DisplayFiles:
    """Save what was shown in `folder`, under names that are new. The folder is made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        """Save the pictures and pages of a MIME bundle, and give their paths.

        What is not what its type says, such as a picture that is not base64, is left out. Raises `WorkspaceError` when the
        folder cannot be written.
        """
        found = [
            (suffix, _content(mime, data[mime])) for mime, suffix in _SAVED.items() if mime in data
        ]
        return tuple(self._write(suffix, content) for suffix, content in found if content)

    def _write(self, suffix: str, content: bytes) -> str:
        path = self.folder / f"{uuid.uuid4().hex}.{suffix}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with open(os.open(path, _NEW_FILE, 0o644), "wb") as file:
                file.write(content)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            raise WorkspaceError(
                f"What was shown cannot be saved in {self.folder}: {error.strerror}."
            ) from error
        return str(path)


def can_be_saved(data: Mapping[str, Any]) -> bool:
    """Tell whether there is anything in a MIME bundle that `DisplayFiles.save` saves."""
    return not _SAVED.keys().isdisjoint(data)


def text_of(data: Mapping[str, Any]) -> str:
    """Give the text that stands for a MIME bundle in the output: whole lines; nothing for an empty bundle.

    That is its plain text, or else its Markdown, LaTeX or JSON; where there is none of them, its types, as in `[image/png]`.
    """
    for mime in ("text/plain", "text/markdown", "text/latex"):
        if (text := _joined(data.get(mime))) is not None:
            return _line(text)
    if "application/json" in data:
        return _line(_json(data["application/json"]))
    return _line(" ".join(f"[{mime}]" for mime in data))


def plain(text: str) -> str:
    """Give `text` without the codes that colour and steer terminals; what else cannot be printed is replaced."""
    if text.isascii() and "\x1b" not in text and "\0" not in text:
        return text  # nearly always, and ten times as fast
    return _CONTROL.sub("", text).translate(_UNSAFE)


def _line(text: str) -> str:
    text = plain(text)
    return f"{text}\n" if text and not text.endswith("\n") else text


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "[application/json]"


def _joined(value: object) -> str | None:
    """Give a text of a bundle, which may be a list of lines; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value:
        lines = cast("list[object] | tuple[object, ...]", value)
        if all(isinstance(line, str) for line in lines):
            return "".join(str(line) for line in lines)
    return None


def _content(mime: str, value: object) -> bytes:
    """Give what to write for the value under `mime`; nothing when that is not what it should be."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    text = _joined(value)
    if text is None:
        return b""
    if mime in _TEXT:
        return text.encode(errors="replace")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""
