"""TextOutputLimit: limit the output of a block that arrives as text events. No I/O."""

from __future__ import annotations

from ...events import Output, OutputTruncated
from ...runtime.output_limit import OutputLimit


class TextOutputLimit:
    """Keep the first and the last half of `max_bytes` of a block's output; None: keep all of it.

    `add` returns the first half as it comes, `finish` the last half.
    """

    def __init__(self, block: int, max_bytes: int | None) -> None:
        self._block = block
        self._limit = OutputLimit(max_bytes, text=True)

    def add(self, output: Output) -> list[Output]:
        """Add output, and return the part of it that can be passed on immediately."""
        if self._limit.max_bytes is None:
            return [output]
        data = output.text.encode(errors="replace")
        head = self._limit.add(output.stream, data)
        if len(head) == len(data):
            return [output]
        return [Output(self._block, output.stream, head.decode())] if head else []

    def finish(self) -> list[OutputTruncated | Output]:
        """Return the last half, after an event that counts the bytes left out before it."""
        lost, tail = self._limit.finish()
        events: list[OutputTruncated | Output] = []
        if lost is not None:
            events.append(OutputTruncated(self._block, lost["stdout"], lost["stderr"]))
        events += [Output(self._block, stream, data.decode()) for stream, data in tail]
        return events
