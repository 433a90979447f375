"""What a live session is busy with, as the server sees it."""

from __future__ import annotations

from typing import Any

from .cells import Run

_FOREVER = float("inf")


class Task:
    """What a session is busy with: a block, or a question, and how far that has come."""

    def __init__(self, run: Run, order: dict[str, Any], descriptors: list[int]) -> None:
        self.run, self.order, self.descriptors = run, order, descriptors
        self.is_block, self.is_halt = order["op"] == "run", order["op"] == "halt"
        self.answer: dict[str, Any] | None = None
        self.kill_at = _FOREVER
        self.shown = 0
        self.dead_since = 0.0
        self.died: tuple[int | None, float] | None = None
        self.brought_back = False
