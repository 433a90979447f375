"""The events of one session: an error of a handler ends only that session."""

from __future__ import annotations

import select
from collections.abc import Callable

from ..faults import OnFault
from ..interfaces import FrameSender


class FaultBoundary:
    """A `FrameSender` that passes everything on to `client`.

    `on_fault` is called with what the handlers raise that were registered here.
    """

    def __init__(self, client: FrameSender, on_fault: OnFault) -> None:
        self._client, self._on_fault = client, on_fault
        self.unregister, self.pause_reading = client.unregister, client.pause_reading
        self.rearm, self.send, self.flush = client.rearm, client.send, client.flush

    @property
    def is_full(self) -> bool:
        """See `EventSource`."""
        return self._client.is_full

    def register(
        self,
        descriptor: int,
        handler: Callable[[], None],
        flags: int = select.EPOLLIN,
        on_fault: OnFault | None = None,
    ) -> None:
        """See `EventSource`."""
        self._client.register(descriptor, handler, flags, on_fault or self._on_fault)
