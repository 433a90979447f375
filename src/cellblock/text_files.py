"""The text of files, in the encodings that editors and shells write. No I/O."""

from __future__ import annotations

import codecs
import io
import tokenize

_ADVICE = "Save it as UTF-8."
_PYTHON_ADVICE = (
    "Save it as UTF-8, or name its encoding in its first line, such as: # coding: latin-1"
)


class UnreadableText(ValueError):
    """A file is not in the encoding that it should have. The message names both."""


def decode_text(data: bytes, name: str) -> str:
    """Return the text of the file `name`: UTF-8, or what its byte order mark says.

    Raise `UnreadableText`.
    """
    is_utf_16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return _decode(data, name, "utf-16" if is_utf_16 else "utf-8-sig", _ADVICE)


def decode_python(data: bytes, name: str) -> str:
    """Return the text of the Python file `name` as Python reads it. Raise `UnreadableText`."""
    return _decode(data, name, python_encoding(data, name), _PYTHON_ADVICE)


def python_encoding(head: bytes, name: str) -> str:
    """Return the encoding of a Python file that starts with `head`, at least two lines of it.

    Raise `UnreadableText`.
    """
    try:
        return tokenize.detect_encoding(io.BytesIO(head).readline)[0]
    except SyntaxError as error:
        raise UnreadableText(f"{name} cannot be decoded: {error.msg}. {_PYTHON_ADVICE}") from error


def unreadable_python(error: UnicodeDecodeError, name: str, lines_before: int) -> UnreadableText:
    """Return the error for a part of the Python file `name`, after `lines_before` lines."""
    return UnreadableText(_message(error, name, _PYTHON_ADVICE, lines_before))


def _decode(data: bytes, name: str, encoding: str, advice: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise UnreadableText(_message(error, name, advice)) from error


def _message(error: UnicodeDecodeError, name: str, advice: str, lines_before: int = 0) -> str:
    line = lines_before + error.object.count(b"\n", 0, error.start) + 1
    encoding = "UTF-8" if error.encoding.startswith("utf-8") else error.encoding
    byte = f"0x{error.object[error.start]:02x}"
    return f"{name} is not {encoding}: see the byte {byte} in line {line}. {advice}"
