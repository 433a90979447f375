"""The protocol between the runtime server and its clients: frames in a stream of bytes.

A frame is ``length (4 bytes) | kind (1 byte) | run (4 bytes) | payload``, with big-endian numbers.
The length counts everything after itself. The kind says whether the payload is raw bytes or one
JSON object. Nothing that is received is unpickled, imported or evaluated.
"""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

# Seconds until the server stops a container whose owner is gone. If only the connection was lost,
# the owner restarts the container before that.
STOP_DELAY: Final = 5
MAX_FRAME: Final = 16 * 1024 * 1024
_HEADER: Final = struct.Struct(">IBI")
# Faster than `Frame.__new__`, which is a Python function, but without a type.
_new: Any = getattr(tuple, "__new__")  # noqa: B009
_AFTER_LENGTH: Final = _HEADER.size - 4
from_json: Final = json.JSONDecoder().raw_decode

# To the server.
OPEN: Final = 1  # JSON: the specification of the server or of a tenant, first and once
RUN: Final = 2  # JSON: one block
CANCEL: Final = 3  # empty
KEEP_PATHS: Final = 4  # JSON: paths that the server must not delete at its end after all
SESSION_REQUEST: Final = 5  # JSON: a request to a live session, or about one
SESSION_DATA: Final = 6  # raw bytes: a chunk of the value of the next request, or a line of input
PING: Final = 7  # empty: asks for a PONG
BOX_REQUEST: Final = 8  # JSON: an order of `box_orders`
BOX_DATA: Final = 9  # raw bytes: input of a command, or of a file; empty at its end
# BOX_DATA for run 0: what works for a box and was stopped goes on
# From the server.
READY: Final = 16  # JSON: blocks can be run; the version of Python
STDOUT: Final = 17  # raw bytes
STDERR: Final = 18  # raw bytes
TRUNCATED: Final = 19  # JSON: number of bytes lost of each stream at this point
ENDED: Final = 20  # JSON: how the run ended; all its processes are gone
FAILED: Final = 21  # JSON: the server failed to do this run, or, with run 0, failed as a whole
PONG: Final = 26  # empty: the reply to a PING
# From a live session, forwarded by the server.
SESSION_REPLY: Final = 22  # JSON: the result of a request
DISPLAY: Final = 23  # JSON: rich output: a MIME bundle and its metadata
VALUE_CHUNK: Final = 24  # raw bytes: a chunk of the requested value
INPUT_REQUEST: Final = 25  # JSON: the code waits for a line of input
# From a box, forwarded by the server, besides STDOUT, STDERR and VALUE_CHUNK.
BOX_STARTED: Final = 27  # JSON: the command runs
BOX_REPLY: Final = 28  # JSON: the result of a request
BOX_TAKEN: Final = 29  # empty: a piece of BOX_DATA has been used, and another one can be sent


def _json_encoder() -> Callable[[Any, int], Iterable[str]]:
    """Return the encoder that `json.dumps` calls in the end.

    Running the functions above it writes to their code objects, which a session would have to copy.
    """
    module: Any = importlib.import_module("json.encoder")
    if module.c_make_encoder is None:  # a Python without the C encoder
        return lambda value, _indent: [json.dumps(value)]
    escape, default = module.encode_basestring_ascii, module.JSONEncoder().default
    return module.c_make_encoder(None, default, escape, None, ": ", ", ", False, False, True)


_to_json: Final = _json_encoder()


class ProtocolError(ValueError):
    """The peer does not follow this protocol."""


class Frame(NamedTuple):
    """One message. `run` is 0 if it concerns the whole server."""

    kind: int
    run: int
    payload: bytes

    def json(self) -> dict[str, object]:
        """Return the JSON object in the payload. Raise `ProtocolError` if it is something else."""
        try:
            text = self.payload.decode()
            value, end = from_json(text)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"A frame of kind {self.kind} does not contain JSON.") from error
        if not isinstance(value, dict) or end != len(text):
            raise ProtocolError(f"A frame of kind {self.kind} does not contain a JSON object.")
        return value  # pyright: ignore[reportUnknownVariableType] - JSON, checked where used


def encode(kind: int, run: int = 0, payload: bytes = b"") -> bytes:
    """Return the bytes of one frame. Raise `ProtocolError` if `payload` is too large."""
    if len(payload) > MAX_FRAME:
        raise ProtocolError(f"A frame of {len(payload)} bytes is larger than {MAX_FRAME} bytes.")
    return _HEADER.pack(_AFTER_LENGTH + len(payload), kind, run) + payload


def encode_json(kind: int, run: int, value: Mapping[str, object]) -> bytes:
    """Return the bytes of one frame with a JSON object."""
    return encode(kind, run, "".join(_to_json(value, 0)).encode())


class Decoder:
    """Splits a stream into frames, in whatever pieces it arrives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def is_in_frame(self) -> bool:
        """Whether the last frame is not complete yet."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add the next bytes, and yield the frames that are complete now.

        Raise `ProtocolError` after the last valid frame if an invalid one follows.
        """
        self._buffer += data
        start = 0
        try:
            while len(self._buffer) - start >= _HEADER.size:
                length, kind, run = _HEADER.unpack_from(self._buffer, start)
                if not _AFTER_LENGTH <= length <= MAX_FRAME + _AFTER_LENGTH:
                    raise ProtocolError(f"A frame has an invalid length of {length} bytes.")
                end = start + 4 + length
                if len(self._buffer) < end:
                    break
                frame = _new(Frame, (kind, run, bytes(self._buffer[start + _HEADER.size : end])))
                start = end
                yield frame
        finally:
            del self._buffer[:start]
