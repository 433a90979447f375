"""Read tar archives: ustar, pax, and the long names of GNU; see tar(5).

Not with `tarfile`: it trusts an archive, which can make it use all memory, or never end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from ...errors import ImageUnusable
from .byte_stream import ByteStream

_BLOCK = 512
_MAX_EXTENSION_BYTES = 1 << 20  # of one member: what does not fit in its header
_MAX_SECONDS = 1 << 33  # in the year 2242
_LONG_NAME, _LONG_LINK, _PAX, _GLOBAL_PAX = b"L", b"K", b"x", b"g"


class Kind(Enum):
    """What a member is, by its flag in the header."""

    FILE = b"0"
    HARD_LINK = b"1"
    SYMBOLIC_LINK = b"2"
    CHARACTER_DEVICE = b"3"
    BLOCK_DEVICE = b"4"
    FOLDER = b"5"
    PIPE = b"6"


class Member(NamedTuple):
    """A file in an archive. `link` is the target of a link, `position` where its data begins."""

    name: str
    kind: Kind
    size: int
    mode: int
    modified: float
    link: str
    position: int


def members(stream: ByteStream) -> Iterator[Member]:
    """Yield each member. Then the caller may read its `size` bytes from `stream`.

    Raise `ImageUnusable` for what is not a tar archive.
    """
    extension, extension_bytes = dict[str, bytes](), 0
    while any(header := stream.read(_BLOCK)):
        if len(header) < _BLOCK:
            raise ImageUnusable("it is not a tar archive, or incomplete")
        _check_sum(header)
        flag, size = header[156:157], _number(header[124:136])
        if flag not in (_LONG_NAME, _LONG_LINK, _PAX, _GLOBAL_PAX):
            member = _member(header, flag, size, extension, stream.position)
            yield member
            stream.skip(member.position + _padded(member.size) - stream.position)
            extension, extension_bytes = {}, 0
            continue
        extension_bytes += size
        if extension_bytes > _MAX_EXTENSION_BYTES:
            raise ImageUnusable("the name or the attributes of a file are too long")
        data = stream.read_exactly(_padded(size))[:size]
        if flag == _LONG_NAME:
            extension["path"] = data.rstrip(b"\0")
        elif flag == _LONG_LINK:
            extension["linkpath"] = data.rstrip(b"\0")
        elif flag == _PAX:
            extension |= _pax_fields(data)


def _member(
    header: bytes, flag: bytes, size: int, extension: dict[str, bytes], position: int
) -> Member:
    name, link = _text(header[:100]), _text(header[157:257])
    if header[257:263] == b"ustar\0" and (folder := _text(header[345:500])):
        name = folder + b"/" + name
    name, link = extension.get("path", name), extension.get("linkpath", link)
    if b"\0" in name + link:
        raise ImageUnusable(f"the name {os.fsdecode(name)!r} contains a NUL")
    kind = _kind(flag, is_folder=name.endswith(b"/"))
    if any(field.startswith("GNU.sparse.") for field in extension):
        raise ImageUnusable(f"{os.fsdecode(name)} is stored as a sparse file")
    return Member(
        os.fsdecode(name),
        kind,
        (_decimal(extension["size"]) if "size" in extension else size) if kind is Kind.FILE else 0,
        _number(header[100:108]),
        _seconds(extension.get("mtime", b"%d" % _number(header[136:148]))),
        os.fsdecode(link),
        position,
    )


def _kind(flag: bytes, *, is_folder: bool) -> Kind:
    if flag in (b"\0", b"7"):  # of old archives; a file in one piece
        return Kind.FOLDER if is_folder else Kind.FILE
    try:
        return Kind(flag)
    except ValueError:
        raise ImageUnusable(f"it has a file of the unknown kind {flag!r}") from None


def _check_sum(header: bytes) -> None:
    expected = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    given = header[148:156].strip(b" \0")
    if given.strip(b"01234567") or int(given or b"0", 8) != expected:
        raise ImageUnusable("it is not a tar archive, or damaged")


def _padded(size: int) -> int:
    """Return how many bytes data of this size has with what fills its last block."""
    return -(-size // _BLOCK) * _BLOCK


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Return a number: octal digits, or if it is large its bytes."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise ImageUnusable(f"it has a header with the number {field!r}")
    return int(digits or b"0", 8)


def _decimal(value: bytes) -> int:
    if not value.isdigit() or len(value) > 20:
        raise ImageUnusable(f"it has a file of the size {value[:40]!r}")
    return int(value)


def _pax_fields(data: bytes) -> dict[str, bytes]:
    """Return the fields of a pax header. Each is its length, a space, "NAME=VALUE", a newline."""
    fields, position = dict[str, bytes](), 0
    while position < len(data):
        length, _, _ = data[position : position + 20].partition(b" ")
        start, position = position + len(length) + 1, position + _decimal(length)
        name, equals, value = data[start:position].partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise ImageUnusable("it has a damaged pax header")
        fields[name.decode(errors="replace")] = value[:-1]
    return fields


def _seconds(value: bytes) -> float:
    """Return a time since 1970; 0 if it makes no sense."""
    try:
        seconds = float(value)
    except ValueError:
        return 0.0
    return seconds if 0 <= seconds < _MAX_SECONDS else 0.0
