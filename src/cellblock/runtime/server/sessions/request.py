"""What a live session is busy with, as the server sees it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

from ... import protocol
from ..cell import Run

_FOREVER = float("inf")
_SHOWN = 64 * 1024 * 1024  # bytes of displays and questions of one block that are passed on


class Task:
    """What a session is busy with: a block, or a question, and how far that has come."""

    def __init__(
        self, run: Run, order: dict[str, Any], descriptors: list[int], payload: bytes | None
    ) -> None:
        self.run, self.order, self.descriptors = run, order, descriptors
        self.payload = json.dumps(order).encode() if payload is None else payload
        self.is_block, self.is_halt = order["op"] == "run", order["op"] == "halt"
        self.answer: dict[str, Any] | None = None
        self.kill_at = _FOREVER
        self._passed = 0  # bytes of what it was asked for, or shows
        self.dead_since = 0.0
        self.died: tuple[int | None, float] | None = None
        self.brought_back = False

    def lets_pass(self, frame: protocol.Frame, memory_bytes: int | None) -> bool:
        """Tell whether `frame` goes on to who asked. Raises `WireError` where nobody can have meant to send it.

        memory_bytes  what the session may hold, and so the largest value
        """
        self._passed += len(frame.payload)
        match frame.kind:
            case protocol.DISPLAY:
                return self._passed <= _SHOWN
            case protocol.INPUT if self.order.get("input"):
                frame.json()
                return self._passed <= _SHOWN
            case protocol.PIECE if self.order["op"] == "get":
                if memory_bytes is not None and self._passed > memory_bytes:
                    raise protocol.WireError(
                        "A value is larger than the memory of the session that holds it."
                    )
                return True
            case _:
                return False


def answer_in(frame: protocol.Frame) -> dict[str, Any]:
    """Give the answer in `frame`, each part of its kind. Raises `WireError`: code in its process may have sent it."""
    answer = frame.json()
    for part, value in answer.items():
        if part not in _PARTS or not _PARTS[part](value):
            raise protocol.WireError(f"An answer has no such part: {part!r}: {value!r:.80}")
    return answer


def _is_number(value: object) -> bool:
    return isinstance(value, int)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda values: isinstance(values, list) and all(map(check, values))  # pyright: ignore[reportUnknownArgumentType]


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _is_variable(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    said: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    return said.keys() == _VARIABLE.keys() and all(
        check(said[name]) for name, check in _VARIABLE.items()
    )


_VARIABLE: Final = {"name": _is_text, "type": _is_text, "size_bytes": _is_number, "repr": _is_text}
_PARTS: Final = {
    "pid": _is_number,
    "keepers": _are(_is_number),
    "exit": _is_number,
    "cpu": _is_time,
    "interrupted": _is_number,
    "error": _is_text,
    "refused": _are(_is_text),
    "missing": _is_number,
    "kind": _is_text,
    "variables": _are(_is_variable),
}
