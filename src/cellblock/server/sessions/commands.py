"""Commands that run beside the interpreter of a session, in the same sandbox."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
from collections.abc import AsyncGenerator

from ...box.output import Piece
from ...box.results import CommandResult
from ...errors import BackendError
from ...events import Outcome, Stream
from ..owners import Owner
from ..refusals import InvalidRequest
from .executors import CommandItem, CommandSettings
from .session import HostedSession, SessionRun
from .store import SessionStore


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
) -> AsyncGenerator[CommandItem]:
    """Run a command when it is its turn. Yield its output as it arrives, and its result last.

    It counts as a run, but does not wait for those that use the interpreter. A slow reader does not
    delay its end. Closing the generator early kills it. Raise `InvalidRequest` if it cannot be
    started, and as `SessionStore.run` does.
    """
    # Not bounded here: `max_output_bytes` bounds what a command can add.
    items = asyncio.Queue[CommandItem | None]()

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
) -> AsyncGenerator[CommandItem]:
    run = SessionRun(action="command", language="")
    async with store.turn(owner, session, run, uses_interpreter=False):
        try:
            async with contextlib.aclosing(session.command(settings)) as pieces:
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
