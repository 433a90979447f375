"""Commands that run beside the interpreter of a session, in the same sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from ...box.output import MAX_OUTPUT_BYTES, Piece
from ...box.results import CommandResult
from ...errors import BackendError
from ...executors.argument_checks import shortest
from ..owners import Owner
from ..refusals import InvalidRequest
from .session import HostedSession, SessionRun
from .store import SessionStore


@dataclass(frozen=True, kw_only=True)
class CommandSettings:
    """What to run. See `Box.exec`. `seconds` can only shorten the time limit of the server."""

    command: str | Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    stdin: bytes | None = None
    seconds: float | None = None
    merges_stderr: bool = False
    max_output_bytes: int = MAX_OUTPUT_BYTES


async def stream_command(
    store: SessionStore, owner: Owner, session: HostedSession, settings: CommandSettings
) -> AsyncGenerator[Piece | CommandResult]:
    """Run a command when it is its turn. Yield its output as it arrives, and its result last.

    It counts as a run, but does not wait for those that use the interpreter. Closing the generator
    early kills it. Raise `InvalidRequest` if it cannot be started, and as `SessionStore.run` does.
    """
    box = session.box
    await session.check_disk_quota()
    async with store.turn(owner, session, SessionRun(), uses_interpreter=False):
        try:
            pieces = box.exec_stream(
                settings.command,
                cwd=settings.cwd,
                env=settings.env,
                stdin=settings.stdin,
                timeout=shortest(box.timeout, settings.seconds),
                merge_stderr=settings.merges_stderr,
                max_output_bytes=settings.max_output_bytes,
            )
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, CommandResult):
                        await store.count(owner, piece.usage.cpu_seconds)
                    yield piece
        except BackendError:
            session.check_open()  # else its own error says less
            raise
        except (OSError, ValueError) as error:
            raise InvalidRequest(str(error)) from error
