"""MIME bundles that a live interpreter displayed: save them as files, and render them as text."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import json
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from ..errors import WorkspaceError
from ..events import Display, Event, Output
from ..runtime.linux.safe_folder import SafeFolder

# In the order of preference: one display gives one file.
_SUFFIXES = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "text/html": "html",
    "application/pdf": "pdf",
}
_MAX_DEPTH = 100  # of nested lists and objects, which every JSON library can read
_INVALID_DISPLAY = "A display was dropped because it is not valid JSON.\n"
_DEEP_DISPLAY = f"A display was dropped because it is nested more than {_MAX_DEPTH} deep.\n"
_NESTED = (dict, list, tuple)
_SURROGATES = re.compile("[\ud800-\udfff]")
_TEXT_TYPES = ("image/svg+xml", "text/html")
# Terminal codes for colours, cursor moves, titles and links.
_TERMINAL_CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])"
)
_REPLACED_CHARACTERS = dict.fromkeys(
    (0, 0x1B, *range(0x80, 0xA0), *range(0xD800, 0xE000)), "\ufffd"
)


class DisplayFiles:
    """Save displayed content in `folder` under new names. The first save creates the folder.

    See `open_output_folder` for `work_dir`.
    """

    is_trusted = True  # the folder may be a link

    def __init__(self, folder: Path, work_dir: Path | None = None) -> None:
        self.folder, self._work_dir = folder, work_dir

    def save(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        """Save an image, or else a page, of a MIME bundle. Return its path, or nothing.

        Skips content that does not match its type, such as an image that is not base64.
        Raise `WorkspaceError` if the folder cannot be written.
        """
        for mime, suffix in _SUFFIXES.items():
            if mime in data and (content := _decode_content(mime, data[mime])):
                return (self._write(suffix, content),)
        return ()

    def new_name(self, suffix: str) -> str:
        """Return a name for a new file. It is called again if there is such a file."""
        return f"{uuid.uuid4().hex}.{suffix}"

    def _write(self, suffix: str, content: bytes) -> str:
        try:
            while True:
                name = self.new_name(suffix)
                with contextlib.suppress(FileExistsError):
                    self._create(name, content)
                    return str(self.folder / name)
        except OSError as error:
            raise WorkspaceError(
                f"Displayed content cannot be saved in {self.folder}: {error.strerror}. "
                "Make the folder writable."
            ) from error

    def _create(self, name: str, content: bytes) -> None:
        if sys.platform == "win32":  # cannot open folders
            with create_output_file(self.folder, name, self._work_dir) as file:
                file.write(content)
        elif self.is_trusted:
            with open_output_folder(self.folder, self._work_dir) as folder:
                folder.write_new_file(name, content)
        else:
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(parents=True, exist_ok=True)
            with SafeFolder.at(self.folder) as folder:
                folder.write_new_file(name, content)


def open_output_folder(folder: Path, work_dir: Path | None) -> SafeFolder:
    """Open `folder`, and create it if it is missing. In `work_dir`, follow no link of code."""
    if work_dir is not None and folder.is_relative_to(work_dir):
        names = folder.relative_to(work_dir).parts
        return SafeFolder.at(work_dir.resolve(), *names, create=True)
    with contextlib.suppress(FileExistsError):  # if it is a file, opening it fails
        folder.mkdir(parents=True, exist_ok=True)
    return SafeFolder.at(folder.resolve())


def create_output_file(folder: Path, name: str, work_dir: Path | None) -> BinaryIO:
    """Create the file `name` in `folder`, which is opened as `open_output_folder` does."""
    if sys.platform == "win32":
        folder.mkdir(parents=True, exist_ok=True)
        return open(folder / name, "xb")
    with open_output_folder(folder, work_dir) as opened:
        return open(opened.create_file(name), "wb")


class NoDisplayFiles(DisplayFiles):
    """Save nothing: the client receives displayed content itself."""

    def __init__(self) -> None:
        super().__init__(Path())

    def save(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        """See `DisplayFiles`."""
        return ()


def save_display(files: DisplayFiles, display: Display) -> Iterator[Event]:
    """Yield `display` with its files, or without them and a message on stderr if saving fails."""
    try:
        saved = files.save(display.data)
    except WorkspaceError as error:
        yield display
        yield Output(display.block, "stderr", f"{error}\n")
    else:
        yield dataclasses.replace(display, files=saved) if saved else display


def display_event(block: int, data: object, metadata: object) -> Display | Output:
    """Return the event of a display, or a message on stderr if it is invalid.

    Nothing that handles a display later has to expect that it cannot be shown as JSON.
    """
    if not isinstance(data, dict) or not isinstance(metadata, dict):
        return Output(block, "stderr", _INVALID_DISPLAY)
    bundle, details = cast("dict[str, object]", data), cast("dict[str, object]", metadata)
    if _is_too_deep([bundle, details]):
        return Output(block, "stderr", _DEEP_DISPLAY)
    return Display(block, _as_unicode(bundle), _as_unicode(details))


def _is_too_deep(values: list[Any]) -> bool:
    for _ in range(_MAX_DEPTH):
        values = [part for value in values for part in _parts(value) if isinstance(part, _NESTED)]
        if not values:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    return cast("dict[str, object]", value).values() if isinstance(value, dict) else value


def _as_unicode(value: Any) -> Any:
    """Return JSON without lone surrogates, which UTF-8 cannot hold."""
    match value:
        case str():
            return value if value.isascii() else _SURROGATES.sub("\ufffd", value)
        case dict():
            parts = cast("dict[str, object]", value)
            return {_as_unicode(name): _as_unicode(part) for name, part in parts.items()}
        case list() if any(isinstance(part, (str, *_NESTED)) for part in cast("list[Any]", value)):
            return [_as_unicode(part) for part in cast("list[Any]", value)]
        case _:
            return value


def has_files(data: Mapping[str, Any]) -> bool:
    """Return True if a MIME bundle contains a type that `DisplayFiles.save` saves."""
    return not _SUFFIXES.keys().isdisjoint(data)


def display_text(data: Mapping[str, Any]) -> str:
    """Return the text that represents a MIME bundle in the output, in whole lines.

    This is the plain text, or the Markdown, LaTeX or JSON if there is no plain text, or the list
    of types, such as `[image/png]`. An empty bundle gives an empty string.
    """
    for mime in ("text/plain", "text/markdown", "text/latex"):
        if (text := _join_lines(data.get(mime))) is not None:
            return _as_line(text)
    if "application/json" in data:
        return _as_line(_json_text(data["application/json"]))
    return _as_line(" ".join(f"[{mime}]" for mime in data))


def strip_terminal_codes(text: str) -> str:
    """Return `text` without terminal codes. Replace other characters that cannot be printed."""
    if text.isascii() and "\x1b" not in text and "\0" not in text:
        return text  # the common case, ten times as fast
    return _TERMINAL_CODES.sub("", text).translate(_REPLACED_CHARACTERS)


def _as_line(text: str) -> str:
    text = strip_terminal_codes(text)
    return f"{text}\n" if text and not text.endswith("\n") else text


def _json_text(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "[application/json]"


def _join_lines(value: object) -> str | None:
    """Return a bundle's value as one string. It can be a list of lines. Return None otherwise."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value:
        lines = cast("list[object] | tuple[object, ...]", value)
        if all(isinstance(line, str) for line in lines):
            return "".join(str(line) for line in lines)
    return None


def _decode_content(mime: str, value: object) -> bytes:
    """Return the bytes to write for a value of type `mime`, or b"" if the value is invalid."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    text = _join_lines(value)
    if text is None:
        return b""
    if mime in _TEXT_TYPES:
        return text.encode(errors="replace")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return b""
