"""Fold what a command writes, and how it ends, into its result."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Final

from ..aio.background_loop import background_loop
from ..events import Usage
from ..runtime import protocol
from ..runtime.box_orders import BoxAnswer
from .results import CommandResult

MAX_OUTPUT_BYTES: Final = 10 << 20  # of each stream
STREAMS: Final = {protocol.STDOUT: 1, protocol.STDERR: 2}  # the stream of a kind of frame

Piece = tuple[int, bytes]  # output, and the stream that it was written to: 1 or 2
OnOutput = Callable[[int, bytes], object]


class KeptOutput:
    """The beginning of each stream of a command: `max_bytes` of it, None for all."""

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._streams = {1: bytearray(), 2: bytearray()}
        self.is_truncated = False

    def add(self, stream: int, data: bytes) -> None:
        """Keep what there is room for."""
        kept = self._streams[stream]
        if self._max_bytes is not None and len(kept) + len(data) > self._max_bytes:
            data, self.is_truncated = data[: self._max_bytes - len(kept)], True
        kept += data

    def result(self, answer: BoxAnswer) -> CommandResult:
        """Return the result of a command that has ended so."""
        return CommandResult(
            1 if answer.exit is None else answer.exit,
            bytes(self._streams[1]),
            bytes(self._streams[2]),
            self.is_truncated or bool(answer.is_truncated),
            bool(answer.is_timed_out),
            Usage(answer.wall or 0.0, answer.cpu or 0.0, answer.peak or 0),
            answer.limit,
        )


async def collect(
    pieces: AsyncGenerator[Piece | CommandResult, None], on_output: OnOutput | None
) -> CommandResult:
    """Run `pieces` on the background loop, give output to `on_output`, and return the result."""
    if on_output is None:
        return await background_loop().call(_result_of(pieces))
    async with contextlib.aclosing(background_loop().stream(pieces)) as items:
        async for item in items:
            if isinstance(item, CommandResult):
                return item
            on_output(*item)
    raise AssertionError("a command without a result")


async def _result_of(pieces: AsyncGenerator[Piece | CommandResult, None]) -> CommandResult:
    async with contextlib.aclosing(pieces):
        async for item in pieces:
            if isinstance(item, CommandResult):
                return item
    raise AssertionError("a command without a result")
