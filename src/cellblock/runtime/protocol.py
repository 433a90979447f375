"""The language of a cell server and whoever uses it: frames over one stream of bytes.

A frame is ``length (4 bytes, big endian) | kind (1 byte) | run (4 bytes, big endian) | payload``; the length counts
everything after itself. Payloads are raw output bytes or one JSON object, as the kind says. Nothing received is ever
unpickled, imported or evaluated.
"""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

MAX_FRAME: Final = 16 * 1024 * 1024
_HEAD: Final = struct.Struct(">IBI")
_new: Any = getattr(tuple, "__new__")  # noqa: B009 - a named tuple's own is a function of Python; this has no type
_AFTER_LENGTH: Final = _HEAD.size - 4
_from_json: Final = json.JSONDecoder().raw_decode

# To the server.
OPEN: Final = 1  # JSON: the place's specification, once
RUN: Final = 2  # JSON: one block
CANCEL: Final = 3  # empty
KEEP: Final = 4  # JSON: paths that are not to be deleted at the end after all
ASK: Final = 5  # JSON: something that is to be done with a live session, or by one
DATA: Final = (
    6  # raw bytes: a piece of the value that the next question is about, or a line of input
)
PING: Final = 7  # empty: whoever serves is to answer
# From the server.
READY: Final = 16  # JSON: the place is open; what it measured about itself
STDOUT: Final = 17  # raw bytes
STDERR: Final = 18  # raw bytes
CUT: Final = 19  # JSON: bytes left out of each stream at this point
ENDED: Final = 20  # JSON: how the run ended, everything of it is dead
FAILED: Final = 21  # JSON: our side failed; run 0 means the whole place
PONG: Final = 26  # empty: the answer
# From a live session, passed on by the server.
ANSWER: Final = 22  # JSON: what became of a question
DISPLAY: Final = 23  # JSON: something rich, as a MIME bundle and its metadata
PIECE: Final = 24  # raw bytes: a piece of the value that was asked for
INPUT: Final = 25  # JSON: the code asks for a line of input


def _json_encoder() -> Callable[[Any, int], Iterable[str]]:
    """Give what `json.dumps` calls in the end: its own functions are code that a session writes to, and has to copy."""
    module: Any = importlib.import_module("json.encoder")
    if module.c_make_encoder is None:  # a Python that is not written in C
        return lambda value, _indent: [json.dumps(value)]
    escape, default = module.encode_basestring_ascii, module.JSONEncoder().default
    return module.c_make_encoder(None, default, escape, None, ": ", ", ", False, False, True)


_to_json: Final = _json_encoder()


class WireError(ValueError):
    """The other end does not speak this protocol."""


class Frame(NamedTuple):
    """One message. `run` is 0 where it concerns the whole place."""

    kind: int
    run: int
    payload: bytes

    def json(self) -> dict[str, Any]:
        """Give the payload as the JSON object that it holds."""
        try:
            text = self.payload.decode()
            value, end = _from_json(text)
        except (ValueError, RecursionError) as error:
            raise WireError(f"Frame of kind {self.kind} holds no JSON.") from error
        if not isinstance(value, dict) or end != len(text):
            raise WireError(f"Frame of kind {self.kind} holds no JSON object.")
        return value  # pyright: ignore[reportUnknownVariableType] - JSON, checked where used


def encode(kind: int, run: int = 0, payload: bytes = b"") -> bytes:
    """Make the bytes of one frame."""
    if len(payload) > MAX_FRAME:
        raise WireError(f"A frame of {len(payload)} bytes is larger than {MAX_FRAME}.")
    return _HEAD.pack(_AFTER_LENGTH + len(payload), kind, run) + payload


def encode_json(kind: int, run: int, value: dict[str, Any]) -> bytes:
    """Make the bytes of one frame that holds a JSON object."""
    return encode(kind, run, "".join(_to_json(value, 0)).encode())


class Decoder:
    """Take a stream apart into frames, however it is cut up on the way."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take in the next bytes and give the frames that are now complete. Raises `WireError` after the last good one."""
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _HEAD.size:
                length, kind, run = _HEAD.unpack_from(self._buffer, start)
                if not _AFTER_LENGTH <= length <= MAX_FRAME + _AFTER_LENGTH:
                    raise WireError(f"A frame announces {length} bytes.")
                end = start + 4 + length
                if len(self._buffer) < end:
                    break
                frame = _new(Frame, (kind, run, bytes(self._buffer[start + _HEAD.size : end])))
                start = end
                yield frame
        finally:
            del self._buffer[:start]
