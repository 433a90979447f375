"""The output of a live session, block by block: what comes between two blocks is kept for the next one."""

from __future__ import annotations

import functools

from ..cell import Run
from ..interfaces import Owner
from ..output import pass_on, send_rest
from ..pipes import Keeper, Pump
from ..pool import EDGES


class Valve:
    """Two pipes that stay for as long as the session, and the run, if any, that their output belongs to."""

    def __init__(self, loop: Owner, cap: int | None) -> None:
        self._loop, self._cap = loop, cap
        self._pump = Pump(cap)
        self._run: Run | None = None
        for reader in self._pump.pipes:
            loop.watch(reader, functools.partial(self._on_output, reader), EDGES)

    @property
    def writers(self) -> list[int]:
        """The writing ends, stdout first."""
        return self._pump.writers

    def open(self, run: Run) -> None:
        """A block begins: what was written since the last one is its output as well."""
        self._run = run
        before = self._pump.keeper
        if not before.is_empty:
            self._pump.keeper = Keeper(self._cap)
            for stream, data in before.held():
                pass_on(self._loop, run, self._pump.keeper, stream, data)

    def close(self, run: Run) -> None:
        """The block is over: send what is left of its output."""
        self.settle(run)
        send_rest(self._loop, run, self._pump.keeper)
        self._pump.keeper, self._run = Keeper(self._cap), None

    def settle(self, run: Run) -> None:
        """Send what the block has written so far."""
        for stream, data in self._pump.settle():
            pass_on(self._loop, run, self._pump.keeper, stream, data)

    def forget(self) -> None:
        """What was written since the last block is of a state that is given up: nobody is to read it."""
        self._pump.settle()
        self._pump.keeper = Keeper(self._cap)

    def _on_output(self, reader: int) -> None:
        if self._loop.is_full:
            self._loop.hold(reader, EDGES)
            return
        for stream, data in self._pump.readable(reader):
            if self._run is not None:
                pass_on(self._loop, self._run, self._pump.keeper, stream, data)
            else:
                self._pump.keeper.hold(stream, data)
        if self._pump.pipes[reader].more:
            self._loop.again(reader, EDGES)

    def shut(self) -> None:
        """For good."""
        for reader in self._pump.pipes:
            self._loop.forget(reader)
        self._pump.close()
