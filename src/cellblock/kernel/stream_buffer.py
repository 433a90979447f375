"""StreamBuffer: merge the text that a cell writes into few messages."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

_DELAY = 0.1  # seconds that text waits for more
_MAX_CHARACTERS = 1 << 18  # that wait


class StreamBuffer:
    """Pass messages to `send` in their order, and merge the text of each stream for a moment.

    Messages end at the end of a line, unless the line takes longer. Belongs to the event loop, and
    to the context, in which it is created.
    """

    def __init__(self, send: Callable[[str, dict[str, Any]], None]) -> None:
        self._send = send
        self._loop, self._context = asyncio.get_running_loop(), contextvars.copy_context()
        self._name, self._texts, self._size = "", list[str](), 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, kind: str, content: dict[str, Any]) -> None:
        """Send a message, after the text before it."""
        if kind != "stream":
            self.flush()
            self._send(kind, content)
            return
        if content["name"] != self._name:
            self.flush()
            self._name = content["name"]
        self._keep(content["text"])
        if self._size > _MAX_CHARACTERS:
            self._send_lines()

    def flush(self) -> None:
        """Send all text."""
        self._send_text(self._take())

    def flush_from_other_context(self) -> None:
        """Send all text. Can be called in any context."""
        self._context.run(self.flush)

    def _keep(self, text: str) -> None:
        self._texts.append(text)
        self._size += len(text)
        if self._timer is None:
            self._timer = self._loop.call_later(_DELAY, self._send_lines)

    def _send_lines(self) -> None:
        """Send the text up to the last end of a line; all if it has none."""
        text = self._take()
        end = text.rfind("\n") + 1 or len(text)
        self._send_text(text[:end])
        if end < len(text):
            self._keep(text[end:])

    def _take(self) -> str:
        if self._timer is not None:
            self._timer.cancel()
        text = "".join(self._texts)
        self._timer, self._texts, self._size = None, [], 0
        return text

    def _send_text(self, text: str) -> None:
        if text:
            self._send("stream", {"name": self._name, "text": text})
