"""Request the branches of a live session from its runtime server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from ...backends.connection import Connection
from ...errors import BackendError, CheckpointError
from ...runtime.session_orders import CloseSession, ForkSession, NewBranch
from .answers import check_answer
from .checkpoint import Checkpoint


@dataclass(frozen=True)
class ForkRequest:
    """How a session is forked: `count` branches of its current state, or of `checkpoint`.

    At most `max_copied_bytes` of files are copied for each. `rollback_checkpoints`: the branches
    make them, as the session does.
    """

    count: int
    checkpoint: Checkpoint | None
    max_copied_bytes: int | None
    rollback_checkpoints: bool

    async def send(
        self, connection: Connection, session: int, branches: Sequence[NewBranch]
    ) -> None:
        """Let the server fork `session`. Raise `CheckpointError`."""
        key = None if self.checkpoint is None else self.checkpoint.key
        order = ForkSession(session, tuple(branches), key, self.rollback_checkpoints)
        try:
            check_answer((await connection.request(order))[0], CheckpointError)
        except asyncio.CancelledError:
            if connection.is_open:  # the server still creates the sessions, so close them
                for branch in branches:
                    with contextlib.suppress(BackendError):
                        await connection.request(CloseSession(branch.session))
            raise
