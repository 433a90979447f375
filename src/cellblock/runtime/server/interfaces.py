"""Whom a cell is for, as cells see him: who hears what comes from them, and what is sent to him."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Watcher(Protocol):
    """Who watches descriptors.

    is_full   more was sent than he takes: nothing of what code writes is to be read
    """

    is_full: bool

    def watch(self, descriptor: int, handler: Callable[[], None], flags: int = ...) -> None:
        """Have `handler` called when `descriptor` can be read."""

    def forget(self, descriptor: int, *, is_to_be_closed: bool = False) -> None:
        """Watch `descriptor` no more; where it is closed at once, the kernel need not be told."""

    def hold(self, descriptor: int, flags: int) -> None:
        """While `is_full`: report `descriptor`, which is not read now, when there is room again."""


class Owner(Watcher, Protocol):
    """And who can be sent something."""

    def again(self, descriptor: int, flags: int) -> None:
        """Have an edge-triggered `descriptor` reported once more if it still holds something."""

    def send(self, frame: bytes, *, can_wait: bool = False) -> None:
        """Send `frame` out, or a moment later together with what follows."""

    def answer(self, frame: bytes, backlog: int) -> None:
        """Send the last frame of a block or question while `backlog` blocks wait for a cell: now, or with other answers."""

    def flush(self) -> None:
        """Give what was sent to the other side now."""
