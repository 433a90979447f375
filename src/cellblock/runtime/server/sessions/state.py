"""The states of a session on the server, which one may follow which, and who is told."""

from __future__ import annotations

import enum
from typing import Final, Protocol, TypeVar

from ...session_orders import ForkBranches, MakeCheckpoint, SubmittedOrder

_Session = TypeVar("_Session", contravariant=True)


class State(enum.Enum):
    """What a session does now. Its process takes orders in all states but the first three.

    While a branch is made, `fork.Step` says more: the session can be READY, but stopped.

    STARTING        its first process and its process start
    RESTORING       its process has ended, and another one takes its place
    CLOSED          its cell ends
    READY           it waits for a request
    BUSY            it runs a block, or reads or sets a variable
    CHECKPOINTING   it makes a named checkpoint
    FORKING         its process waits for the helper that forks branches
    """

    STARTING = enum.auto()
    RESTORING = enum.auto()
    CLOSED = enum.auto()
    READY = enum.auto()
    BUSY = enum.auto()
    CHECKPOINTING = enum.auto()
    FORKING = enum.auto()


_WORKING = {State.BUSY, State.CHECKPOINTING, State.FORKING}
TRANSITIONS: Final = {
    State.STARTING: {State.READY, State.CLOSED},
    State.RESTORING: {State.READY, State.CLOSED},
    State.READY: {State.RESTORING, State.CLOSED, *_WORKING},
    **{state: {State.READY, State.RESTORING, State.CLOSED} for state in _WORKING},
    State.CLOSED: set[State](),
}
WITHOUT_PROCESS: Final = frozenset({State.STARTING, State.RESTORING, State.CLOSED})
_STATE_BY_ORDER: Final[dict[type, State]] = {
    MakeCheckpoint: State.CHECKPOINTING,
    ForkBranches: State.FORKING,
}


def state_during(order: SubmittedOrder) -> State:
    """Return the state of a session whose process carries out `order`."""
    return _STATE_BY_ORDER.get(type(order), State.BUSY)


class SessionOwner(Protocol[_Session]):
    """What a session tells its owner."""

    def on_hello(self, session: _Session) -> None:
        """The first process of its cell is ready: start the session."""

    def on_ready(self, session: _Session) -> None:
        """Its process is ready for requests."""

    def on_gone(self, session: _Session, why: str) -> None:
        """Its cell has failed, or could not be made: close it."""
