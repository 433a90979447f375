"""What a session is asked to do, as the server sees it, and the validation of its answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

from ... import protocol
from ..cell import Run
from ..event_loop import FOREVER

_MAX_FORWARDED_BYTES = 64 * 1024 * 1024  # of the displays and input requests of one block


class SessionRequest:
    """A block or another order that a session works on, and its progress."""

    def __init__(
        self, run: Run, order: dict[str, Any], descriptors: list[int], payload: bytes | None
    ) -> None:
        self.run, self.order, self.descriptors = run, order, descriptors
        self.payload = json.dumps(order).encode() if payload is None else payload
        self.is_block, self.is_kill = order["op"] == "run", order["op"] == "kill"
        self.answer: dict[str, Any] | None = None
        self.kill_at = FOREVER
        self._forwarded_bytes = 0
        self.exited_at = 0.0  # when the session's process has ended meanwhile
        self.exit_usage: tuple[int | None, float] | None = None  # its exit status, CPU seconds
        self.restarted = False

    def wait_status(self) -> tuple[int | None, float]:
        """Return the wait status of the block, if known, and the CPU seconds of its process."""
        if self.answer is None:
            return self.exit_usage or (None, 0.0)
        return (self.answer.get("exit", 1) & 0xFF) << 8, float(self.answer.get("cpu", 0.0))

    def error(self) -> str | None:
        """Return what failed while the block ran, unless it was interrupted."""
        if self.answer is None or self.answer.get("interrupted"):
            return None
        return self.answer.get("error")

    def should_forward(self, frame: protocol.Frame, memory_bytes: int | None) -> bool:
        """Return True if the client is to receive `frame`.

        `memory_bytes` is the memory limit of the session, and so the size limit of a value. Raises
        `ProtocolError` for an invalid frame or a value that is too large.
        """
        self._forwarded_bytes += len(frame.payload)
        match frame.kind:
            case protocol.DISPLAY:
                return self._forwarded_bytes <= _MAX_FORWARDED_BYTES
            case protocol.INPUT_REQUEST if self.order.get("input"):
                frame.json()
                return self._forwarded_bytes <= _MAX_FORWARDED_BYTES
            case protocol.VALUE_CHUNK if self.order["op"] == "get":
                if memory_bytes is not None and self._forwarded_bytes > memory_bytes:
                    raise protocol.ProtocolError(
                        "A value is larger than the memory limit of its session."
                    )
                return True
            case _:
                return False


def parse_answer(frame: protocol.Frame) -> dict[str, Any]:
    """Return the answer in `frame`, which user code in the session's process may have sent.

    Raises `ProtocolError` if a field is unknown or has a wrong type.
    """
    answer = frame.json()
    for name, value in answer.items():
        if name not in _ANSWER_FIELDS or not _ANSWER_FIELDS[name](value):
            raise protocol.ProtocolError(f"An answer has an invalid field: {name!r}: {value!r:.80}")
    return answer


def _is_number(value: object) -> bool:
    return isinstance(value, int)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_list_of(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda values: isinstance(values, list) and all(map(check, values))  # pyright: ignore[reportUnknownArgumentType]


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _is_variable(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    return fields.keys() == _VARIABLE_FIELDS.keys() and all(
        check(fields[name]) for name, check in _VARIABLE_FIELDS.items()
    )


_VARIABLE_FIELDS: Final = {
    "name": _is_text,
    "type": _is_text,
    "size_bytes": _is_number,
    "repr": _is_text,
}
_ANSWER_FIELDS: Final = {
    "pid": _is_number,
    "checkpoint_pids": _is_list_of(_is_number),
    "exit": _is_number,
    "cpu": _is_time,
    "interrupted": _is_number,
    "error": _is_text,
    "refused": _is_list_of(_is_text),
    "missing": _is_number,
    "kind": _is_text,
    "variables": _is_list_of(_is_variable),
}
