"""Encode what the blocks of a session display as frames, within limits.

What cannot be sent is named on stderr: the largest types of a display that is too large, then
displays of a block that has shown too much.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from typing import Any

from ... import protocol

_LONG_TEXT = 1 << 16  # characters
_MAX_DISPLAY = protocol.MAX_FRAME // 4 * 3  # bytes
_MAX_DISPLAYS = (64 << 20) - (1 << 16)  # bytes of one block; the server drops more than 64 MiB


class DisplayEncoder:
    """Encodes the displays of one block after another."""

    def __init__(self) -> None:
        self._bytes = 0  # of the present block

    def begin_block(self) -> None:
        """Count the displays of a block from now on."""
        self._bytes = 0

    def encode(self, run: int, data: Any, metadata: Any) -> bytes:
        """Return the frame of a display, or b"" if nothing of it can be sent."""
        try:
            bundle = {mime: _as_json(content) for mime, content in data.items()}
            frame = _encode_what_fits(run, bundle, dict(metadata))
        except (TypeError, ValueError, RecursionError) as error:
            sys.stderr.write(f"A display was dropped because it is not valid JSON: {error}.\n")
            return b""
        self._bytes += len(frame)
        if self._bytes > _MAX_DISPLAYS:
            limit = f"The limit of all displays of a block is {_MAX_DISPLAYS} bytes."
            sys.stderr.write(f"A display of {len(frame)} bytes was dropped. {limit}\n")
            return b""
        return frame

    def encode_text(self, run: int, text: str) -> bytes:
        """Return the frame of a display that is only text."""
        if len(text) > _LONG_TEXT:
            return self.encode(run, {"text/plain": text}, {})
        display = {"data": {"text/plain": text}, "metadata": {}}
        return protocol.encode_json(protocol.DISPLAY, run, display)


def _encode_what_fits(run: int, bundle: dict[str, object], metadata: dict[str, object]) -> bytes:
    """Return the frame of a display without the largest types if it is too large."""
    while bundle:
        with contextlib.suppress(protocol.ProtocolError):
            display = {"data": bundle, "metadata": metadata}
            frame = protocol.encode_json(protocol.DISPLAY, run, display)
            if len(frame) <= _MAX_DISPLAY:
                return frame
        sizes = {mime: len(json.dumps(content)) for mime, content in bundle.items()}
        largest = max(sizes, key=lambda mime: sizes[mime])
        del bundle[largest]
        limit = f"The limit of a display is {_MAX_DISPLAY} bytes."
        sys.stderr.write(
            f"{largest} of {sizes[largest]} bytes was left out of a display. {limit}\n"
        )
    return b""


def _as_json(content: Any) -> Any:
    """Return bytes as base64, their form in a MIME bundle, and anything else unchanged."""
    return base64.b64encode(content).decode() if isinstance(content, bytes | bytearray) else content
