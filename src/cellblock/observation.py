"""What a model is shown of a result: one pure function for agents, tools, chat and MCP."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .results import CodeResult

MAX_CHARACTERS = 20_000
_MAX_FILE_NAMES = 50
_MAX_PICTURES = 10
_MAX_PICTURE_BYTES = 4_000_000  # services refuse images of more than about 5 MB
_PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
# The signals of Linux, where the code ran, that end programs that crash. Shells add 128 to make the
# exit code.
_CRASHES = {
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    11: "SIGSEGV",
    31: "SIGSYS",
}

# What programs say without a network.
LACKS_NETWORK = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|No address associated with hostname|Could not resolve host|unable to resolve host"
)
_NO_NETWORK = "Blocks have no network here: nothing can be downloaded or installed."

# AutoGen's texts.
_NO_OUTPUT = (
    "The script ran but produced no output to console. The POSIX exit code was: {exit_code}. "
    "If you were expecting output, consider revising the script to ensure content is printed to "
    "stdout."
)
_ERROR = (
    "The script ran, then exited with an error (POSIX exit code: {exit_code})\n"
    "Its output was:\n{output}"
)

# The first line of a frame, and the source lines below it. The first form is Python's, also in an
# exception group. The second is IPython's, which ends with an empty line.
_FRAME = re.compile(
    r'^(?P<indent>[ |]*)File "(?P<python>[^"\n]+)", line \d+, in [^\n]*\n'
    r"(?:(?P=indent)(?:  |\[Previous line)[^\n]*\n)*"
    r"|^File (?P<ipython>\S[^\n]*?):\d+(?:, in [^\n]*)?\n(?:[^\n]+\n)*\n?"
    r"|^Cell In ?\[\d+\], line \d+",
    re.MULTILINE,
)
_LIBRARY_PATH = re.compile(
    r"^<frozen |(?:^|/)(?:lib(?:64)?/(?:python|pypy)\d|(?:site|dist)-packages/|python\d+\.zip/)"
)


@dataclass(frozen=True)
class Picture:
    """A picture that a block displayed: the content of an image file."""

    mime_type: str
    data: bytes


@dataclass(frozen=True)
class Observation:
    """What a model is shown of a result. `pictures` are for models with vision."""

    text: str
    pictures: tuple[Picture, ...] = ()


def observe(
    result: CodeResult,
    *,
    max_characters: int | None = MAX_CHARACTERS,
    has_network: bool = True,
) -> Observation:
    """Return what a model should see of `result`.

    The text is the output, or AutoGen's text about blank output or an exit code that is not 0.
    After an error, the frames of libraries in Python's tracebacks are replaced by their number.
    Of an output with more than `max_characters`, only the head and the tail are kept; None keeps
    all. Lines about files, a limit, the session and missing pictures follow, if there is something
    to tell that the output does not; and one about the network, if the code missed it and blocks
    have none.

    Raise `ValueError` if `max_characters` is below 1.
    """
    if max_characters is not None and max_characters < 1:
        raise ValueError(f"max_characters must be at least 1 or None, not {max_characters}.")
    output = result.output if result.exit_code == 0 else cut_traceback(result.output)
    text = _with_exit_code(shorten(output, max_characters), result.exit_code)
    pictures, notes = _pictures(result)
    notes = [*_notes(result, text), *notes]
    if note := network_note(result.output, has_network=has_network):
        notes.append(note)
    if notes:
        text = "\n".join([text.removesuffix("\n"), *notes])
    return Observation(text, pictures)


def network_note(output: str, *, has_network: bool) -> str:
    """Return a line that says why the program that wrote `output` missed the network, or ""."""
    return "" if has_network or not LACKS_NETWORK.search(output) else _NO_NETWORK


def shorten(text: str, max_characters: int | None) -> str:
    """Return the head and the tail of `text`, with the number of characters left out between."""
    if max_characters is None or len(text) <= max_characters:
        return text
    head = max_characters // 2
    tail = len(text) - (max_characters - head)
    return f"{text[:head]}\n[... {tail - head} characters left out ...]\n{text[tail:]}"


def cut_traceback(text: str) -> str:
    """Return `text` without the frames of libraries in its Python tracebacks.

    A library is a file in a Python installation or environment. Frames in a row are replaced by one
    line with their number. A text without a frame of anything else is returned unchanged.
    """
    if "Traceback (most recent call last)" not in text:
        return text
    frames = list(_FRAME.finditer(text))
    if all(_is_library(frame) for frame in frames):
        return text
    parts: list[str] = []
    run: list[re.Match[str]] = []  # library frames in a row
    position = 0
    for frame in filter(_is_library, frames):
        if frame.start() != position:
            parts += [_describe_frames(run), text[position : frame.start()]]
            run = []
        run.append(frame)
        position = frame.end()
    return "".join([*parts, _describe_frames(run), text[position:]])


def _is_library(frame: re.Match[str]) -> bool:
    path = frame["python"] or frame["ipython"]
    return path is not None and _LIBRARY_PATH.search(path) is not None


def _describe_frames(frames: list[re.Match[str]]) -> str:
    if not frames:
        return ""
    count = "1 library frame" if len(frames) == 1 else f"{len(frames)} library frames"
    if frames[0]["python"] is None:
        return f"[{count} left out]\n\n"
    return f"{frames[0]['indent']}[{count} left out]\n"


def _with_exit_code(output: str, exit_code: int) -> str:
    if not output.strip():
        return _NO_OUTPUT.format(exit_code=exit_code)
    return output if exit_code == 0 else _ERROR.format(exit_code=exit_code, output=output)


def _notes(result: CodeResult, text: str) -> Iterator[str]:
    """Yield a line for each fact that `text` does not mention."""
    if result.files:
        yield f"Files created or changed: {_file_names(result.files)}"
    number = result.exit_code - 128
    if result.outcome == "error" and number in _CRASHES and _CRASHES[number] not in text:
        name = _CRASHES[number]
        yield f"Exit code {result.exit_code}: signal {number} ({name}) killed the program."
    match result.outcome:
        case "out_of_memory" if "Out of memory" not in text:
            yield "The code ran out of memory."
        case "timeout" if "Timeout" not in text:
            yield "The code reached the time limit."
        case "killed" if result.limit is not None and result.limit not in text:
            yield f"The code reached the limit {result.limit}."
        case _:
            pass
    if result.notice and result.notice not in text:
        yield result.notice


def _file_names(files: list[str]) -> str:
    names = [name if name.isprintable() else repr(name) for name in files[:_MAX_FILE_NAMES]]
    if len(files) > _MAX_FILE_NAMES:
        names.append(f"and {len(files) - _MAX_FILE_NAMES} more")
    return ", ".join(names)


def _pictures(result: CodeResult) -> tuple[tuple[Picture, ...], list[str]]:
    """Return the pictures to show, and lines about those that are left out."""
    found = [picture for bundle in result.displays if (picture := _picture(bundle))]
    small = [picture for picture in found if len(picture.data) <= _MAX_PICTURE_BYTES]
    notes: list[str] = []
    if too_large := len(found) - len(small):
        notes.append(f"Pictures left out because they are too large: {too_large}")
    if (more := len(small) - _MAX_PICTURES) > 0:
        notes.append(f"Pictures left out because there are too many: {more}")
    return tuple(small[:_MAX_PICTURES]), notes


def _picture(bundle: Mapping[str, Any]) -> Picture | None:
    """Return the picture in a MIME bundle; None if it has none, or its content is damaged."""
    for mime_type in _PICTURE_TYPES:
        content = bundle.get(mime_type)
        if isinstance(content, str):
            try:
                content = base64.b64decode("".join(content.split()), validate=True)
            except (binascii.Error, ValueError):
                continue
        if isinstance(content, bytes) and content:
            return Picture(mime_type, content)
    return None
