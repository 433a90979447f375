"""Request the branches of a live session from its runtime server."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from ...backends.connection import Connection
from ...errors import BackendError, CheckpointError
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
        self, connection: Connection, session: int, branches: list[dict[str, Any]]
    ) -> None:
        """Let the server fork `session`. Each branch has the fields of `messages.NewBranch`.

        Raise `CheckpointError`.
        """
        request = {
            "op": "fork",
            "session": session,
            "branches": branches,
            "rollback_checkpoints": self.rollback_checkpoints,
            "checkpoint_key": None if self.checkpoint is None else self.checkpoint.key,
        }
        try:
            check_answer((await connection.request(request))[0], CheckpointError)
        except asyncio.CancelledError:
            if connection.is_open:  # the server still creates the sessions, so close them
                for branch in branches:
                    with contextlib.suppress(BackendError):
                        await connection.request({"op": "close", "session": branch["session"]})
            raise
