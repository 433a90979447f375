"""Commands that run beside the interpreter of a session, in the same sandbox."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from ...box.output import MAX_OUTPUT_BYTES, Piece
from ...box.results import CommandResult
from ...errors import BackendError
from ...events import Outcome, Stream
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


class CommandText:
    """Decodes the output of a command, piece by piece, whatever bytes it has."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders: dict[Stream, codecs.IncrementalDecoder] = {
            "stdout": make("replace"),
            "stderr": make("replace"),
        }

    def decode(self, piece: Piece) -> tuple[Stream, str]:
        """Return the stream of a piece, and its text as far as its characters are complete."""
        stream: Stream = "stdout" if piece[0] == 1 else "stderr"
        return stream, self._decoders[stream].decode(piece[1])

    def finish(self) -> list[tuple[Stream, str]]:
        """Return the text of incomplete characters at the end."""
        return [(name, each.decode(b"", final=True)) for name, each in self._decoders.items()]


async def stream_command(
    store: SessionStore, owner: Owner, session: HostedSession, settings: CommandSettings
) -> AsyncGenerator[Piece | CommandResult]:
    """Run a command when it is its turn. Yield its output as it arrives, and its result last.

    It counts as a run, but does not wait for those that use the interpreter. A slow reader does not
    delay its end. Closing the generator early kills it. Raise `InvalidRequest` if it cannot be
    started, and as `SessionStore.run` does.
    """
    # Not bounded here: `max_output_bytes` bounds what a command can add.
    items = asyncio.Queue[Piece | CommandResult | None]()

    async def work() -> None:
        try:
            async with contextlib.aclosing(_run(store, owner, session, settings)) as pieces:
                async for piece in pieces:
                    items.put_nowait(piece)
        finally:
            items.put_nowait(None)

    task = asyncio.ensure_future(work())
    try:
        while (item := await items.get()) is not None:
            yield item
        await task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _run(
    store: SessionStore, owner: Owner, session: HostedSession, settings: CommandSettings
) -> AsyncGenerator[Piece | CommandResult]:
    box = session.box
    await session.check_disk_quota()
    run = SessionRun(action="command", language="")
    async with store.turn(owner, session, run, uses_interpreter=False):
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
                        store.count(owner, run, piece.usage.cpu_seconds, _outcome(piece))
                    yield piece
        except BackendError:
            session.check_open()  # else its own error says less
            raise
        except (OSError, ValueError) as error:
            raise InvalidRequest(str(error)) from error


def _outcome(result: CommandResult) -> Outcome:
    if result.timed_out:
        return "timeout"
    return "error" if result.exit_code else "ok"
