"""Forward a run's output to the client, within its limit."""

from __future__ import annotations

from .. import protocol
from ..messages import OutputLost
from ..output_limit import OutputLimit
from .cell import Run
from .interfaces import FrameSender


def forward_output(
    client: FrameSender, run: Run, limit: OutputLimit, stream: str, data: bytes
) -> None:
    """Save the output to the run's file, and send immediately what the limit passes on."""
    run.save_output(data)
    now = limit.add("stdout" if stream == "stdout" else "stderr", data)
    if now:
        client.send(_frame(run, stream, now), can_wait=True)


def send_tail(client: FrameSender, run: Run, limit: OutputLimit) -> None:
    """At the end of a run, send the number of lost bytes and the last half of the output."""
    if limit.is_empty:
        return
    lost, tail = limit.finish()
    if lost:
        client.send(OutputLost(**lost).encode(run.number), can_wait=True)
    for stream, data in tail:
        for start in range(0, len(data), protocol.MAX_FRAME):
            frame = _frame(run, stream, data[start : start + protocol.MAX_FRAME])
            client.send(frame, can_wait=True)


def _frame(run: Run, stream: str, data: bytes) -> bytes:
    kind = protocol.STDOUT if stream == "stdout" else protocol.STDERR
    return protocol.encode(kind, run.number, data)
