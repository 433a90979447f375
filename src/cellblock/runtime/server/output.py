"""The output of a run, on its way from the pipes to whoever reads the server."""

from __future__ import annotations

from typing import Protocol

from .. import protocol
from .cell import Run
from .pipes import Keeper


class Sender(Protocol):
    """What this needs of the server."""

    def send(self, frame: bytes, *, can_wait: bool = False) -> None:
        """Send `frame` out, or a moment later together with what follows."""


def pass_on(loop: Sender, run: Run, keeper: Keeper, stream: str, data: bytes) -> None:
    """Save what was asked to be saved, and send what the cap lets through at once."""
    run.save(data)
    now = keeper.take("stdout" if stream == "stdout" else "stderr", data)
    if now:
        loop.send(_frame(run, stream, now), can_wait=True)


def send_rest(loop: Sender, run: Run, keeper: Keeper) -> None:
    """At the end: send how much was left out, and the last half of the output."""
    if keeper.is_empty:
        return
    lost, tail = keeper.rest()
    if lost:
        loop.send(protocol.encode_json(protocol.CUT, run.number, lost), can_wait=True)
    for stream, data in tail:
        for start in range(0, len(data), protocol.MAX_FRAME):
            loop.send(_frame(run, stream, data[start : start + protocol.MAX_FRAME]), can_wait=True)


def _frame(run: Run, stream: str, data: bytes) -> bytes:
    return protocol.encode(
        protocol.STDOUT if stream == "stdout" else protocol.STDERR, run.number, data
    )
