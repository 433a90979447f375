"""Encode messages, which are named tuples, and validate their fields where they arrive.

A *packet* is a JSON list: the name of the message and its fields in order. In a frame from a server
the fields have names, and most of them are left out.
"""

from __future__ import annotations

import binascii
import functools
import json
import os
from collections.abc import Callable, Collection
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from . import protocol

_Message = TypeVar("_Message", bound="tuple[Any, ...]")
WaitStatus = Annotated[int, "how a process ended, see waitpid(2)"]


def _to_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


_to_json: Final = json.JSONEncoder(default=_to_base64).encode


def encode_packet(message: tuple[object, ...]) -> bytes:
    """Return the packet with `message`: its name and its fields, as a JSON list."""
    return _to_json([type(message).__name__, *message]).encode()


def decode_packet(packet: bytes, *kinds: type[_Message]) -> _Message:
    """Return the message in `packet`, of one of `kinds`. Raise `ProtocolError`."""
    try:
        text = packet.decode()
        (name, *values), end = protocol.from_json(text)
        if end != len(text):
            raise ValueError("it is longer than its JSON")
        (kind,) = (kind for kind in kinds if kind.__name__ == name)
        return _reader(kind)(values)
    except (ValueError, TypeError, RecursionError) as error:
        raise protocol.ProtocolError(f"A packet is invalid: {error}") from error


def _is_number(value: object) -> bool:
    # The bound excludes what a conversion refuses: JSON has any number.
    return type(value) in (int, float) and 0 <= cast("float", value) < 1 << 63


def _is_wait_status(value: object) -> bool:
    return (
        type(value) is int
        and 0 <= value <= 0xFFFF
        and (os.WIFEXITED(value) or os.WIFSIGNALED(value))
    )


_CHECKS: Final[dict[object, Callable[[object], bool]]] = {
    bool: lambda value: isinstance(value, bool),
    int: lambda value: type(value) is int and -1 << 64 < value < 1 << 64,
    float: _is_number,
    WaitStatus: _is_wait_status,
    str: lambda value: isinstance(value, str),
    dict[str, str]: lambda value: (
        isinstance(value, dict)
        and all(map(_CHECKS[str], cast("dict[str, object]", value).values()))
    ),
}


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the function that returns a JSON value as `kind`, or raises `ValueError`."""
    arguments = get_args(kind)
    if is_valid := _CHECKS.get(kind):
        return functools.partial(_checked, is_valid)
    if kind is bytes:
        return binascii.a2b_base64
    if type(None) in arguments:
        read_some = _reader(arguments[0])
        return lambda value: None if value is None else read_some(value)
    if arguments[-1:] == (...,):
        read_each = _reader(arguments[0])
        return lambda values: tuple(map(read_each, _checked(_is_list, values)))
    if get_origin(kind) is tuple:
        fields = [(str(index), _reader(part)) for index, part in enumerate(arguments)]
        return lambda values: (*_read_fields(fields, _checked(_is_list, values)),)
    readers = _field_readers(kind).items()
    return lambda values: kind(*_read_fields(readers, _checked(_is_list, values)))


@functools.cache
def _field_readers(kind: type[tuple[Any, ...]]) -> dict[str, Callable[[Any], Any]]:
    """Return the functions of `_reader` for the fields of a message."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: _reader(hint) for name, hint in hints.items()}


def _read_fields(
    fields: Collection[tuple[str, Callable[[Any], Any]]], values: list[object]
) -> list[object]:
    name, found = "its length", list[object]()
    try:
        for (name, read), value in zip(fields, values, strict=True):  # noqa: B007 - in the error
            found.append(read(value))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from error
    return found


def _checked(is_valid: Callable[[object], bool], value: Any) -> Any:
    if not is_valid(value):
        raise ValueError(f"{value!r:.80}")
    return value


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def fields_of(message: NamedTuple) -> dict[str, object]:
    """Return the fields of `message`, without those that are None by default."""
    return {
        name: value
        for name, value in message._asdict().items()
        if value is not None or name not in message._field_defaults
    }


def decode_fields(frame: protocol.Frame, kind: type[_Message]) -> _Message:
    """Return the message in `frame`, whose fields have names; those left out have their default.

    Raise `ProtocolError`.
    """
    readers = _field_readers(kind)
    name = ""
    try:
        found = dict[str, object]()
        for name, value in frame.json().items():
            found[name] = readers[name](value)
        return kind(**found)
    except (KeyError, ValueError, TypeError) as error:
        raise protocol.ProtocolError(
            f"A frame of kind {frame.kind} has an invalid field: {name!r}: {error}"
        ) from error
