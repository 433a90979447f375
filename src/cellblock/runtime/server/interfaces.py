"""What the parts of the server need of the client that they work for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .faults import OnFault


class EventSource(Protocol):
    """Watches descriptors."""

    @property
    def is_full(self) -> bool:
        """Whether too much output waits to be sent: what code writes must not be read now."""
        ...

    def register(
        self,
        descriptor: int,
        handler: Callable[[], None],
        flags: int = ...,
        on_fault: OnFault | None = None,
    ) -> None:
        """Call `handler` whenever `descriptor` is readable.

        `on_fault` is called with what it raises. By default, an error of the system is
        ignored, and any other ends the client.
        """

    def unregister(self, descriptor: int, *, closing: bool = False) -> None:
        """Stop watching `descriptor`. With `closing`, its close removes it from the epoll set."""

    def pause_reading(self, descriptor: int, flags: int) -> None:
        """Do not read `descriptor` while `is_full`. It is reported when there is room again."""


class FrameSender(EventSource, Protocol):
    """Watches descriptors, and sends frames to the client."""

    def rearm(self, descriptor: int, flags: int) -> None:
        """Report an edge-triggered `descriptor` once more if it is still readable."""

    def send(self, frame: bytes, *, can_wait: bool = False) -> None:
        """Send `frame`. With `can_wait`, it is sent a moment later, together with what follows."""

    def flush(self) -> None:
        """Write everything that was sent, as far as the client accepts it now."""
