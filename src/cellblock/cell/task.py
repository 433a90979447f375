"""What a live session is busy with, as the server sees it."""

from __future__ import annotations

import json
from typing import Any

from .cells import Run

_FOREVER = float("inf")


class Task:
    """What a session is busy with: a block, or a question, and how far that has come."""

    def __init__(self, run: Run, order: dict[str, Any], descriptors: list[int], payload: bytes | None) -> None:
        self.run, self.order, self.descriptors = run, order, descriptors
        self.payload = json.dumps(order).encode() if payload is None else payload
        self.is_block, self.is_halt = order["op"] == "run", order["op"] == "halt"
        self.answer: dict[str, Any] | None = None
        self.kill_at = _FOREVER
        self.shown = 0
        self.dead_since = 0.0
        self.died: tuple[int | None, float] | None = None
        self.brought_back = False
