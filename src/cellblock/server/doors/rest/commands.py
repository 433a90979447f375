"""The operation that runs a command in a session: one answer at its end, or its live output."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ....box.output import Piece
from ....box.results import CommandResult
from ....events import Stream
from ...http.bodies import read_json
from ...http.disconnect import run_while_connected
from ...http.services import Services
from ...owners import Owner
from ...refusals import InvalidRequest
from ...sessions.commands import CommandSettings, CommandText, stream_command
from .answers import CommandEnding, CommandInfo, ErrorDetail, answer
from .event_stream import STREAM_HEADERS, OutputEvent, encode
from .live_run import PING_SECONDS, use_existing
from .requests import CommandRequest

_Items = AsyncGenerator[Piece | CommandResult]


class CommandOperations:
    """Run commands beside the interpreter of a session. They end with their request."""

    def __init__(self, services: Services) -> None:
        self._store = services.store

    async def run_command(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/commands."""
        session_id = request.path_params["session_id"]
        if "idempotency-key" in request.headers:
            raise InvalidRequest(
                "A command cannot be repeated safely. Leave out the header Idempotency-Key, or use "
                "POST runs with the language 'sh'."
            )
        self._store.find(owner, session_id)
        body = await read_json(request, CommandRequest, self._store.settings.max_body_bytes)
        settings = CommandSettings(
            command=body.command,
            cwd=body.cwd,
            env=body.env,
            stdin=None if body.stdin is None else body.stdin.encode(errors="replace"),
            seconds=body.timeout_seconds,
            merges_stderr=body.merge_stderr,
            max_output_bytes=body.max_output_bytes,
        )
        items = self._run(owner, session_id, settings)
        if not body.stream:
            return answer(CommandInfo.of(await run_while_connected(request, _result_of(items))))
        first = await run_while_connected(request, anext(items))  # raises what prevents the start
        return StreamingResponse(
            _encode_all(first, items), headers=STREAM_HEADERS, media_type="text/event-stream"
        )

    async def _run(self, owner: Owner, session_id: str, settings: CommandSettings) -> _Items:
        async with (
            use_existing(self._store, owner, session_id) as session,
            contextlib.aclosing(stream_command(self._store, owner, session, settings)) as items,
        ):
            async for item in items:
                yield item


async def _result_of(items: _Items) -> CommandResult:
    async with contextlib.aclosing(items):
        async for item in items:
            if isinstance(item, CommandResult):
                return item
    raise AssertionError("a command without a result")


async def _encode_all(first: Piece | CommandResult, items: _Items) -> AsyncGenerator[bytes]:
    text = CommandText()
    try:
        async with contextlib.aclosing(_with_pings(first, items)) as following:
            async for item in following:
                if item is None:
                    yield b": ping\n\n"
                elif isinstance(item, CommandResult):
                    for rest in text.finish():
                        yield _output(*rest)
                    yield encode("ended", CommandEnding.of(item))
                else:
                    yield _output(*text.decode(item))
    except Exception as error:
        yield encode("failed", ErrorDetail.of(error))


async def _with_pings(
    first: Piece | CommandResult, items: _Items
) -> AsyncGenerator[Piece | CommandResult | None]:
    """Yield `first` and the items, and None after `PING_SECONDS` of silence."""
    async with contextlib.aclosing(items):
        item: Piece | CommandResult | None = first
        while item is not None:
            yield item
            pending = asyncio.ensure_future(_next(items))
            try:
                while not (await asyncio.wait({pending}, timeout=PING_SECONDS))[0]:
                    yield None
            finally:
                if not pending.done():
                    pending.cancel()
                    await asyncio.wait({pending})
            item = pending.result()


async def _next(items: _Items) -> Piece | CommandResult | None:
    return await anext(items, None)


def _output(stream: Stream, text: str) -> bytes:
    return encode("output", OutputEvent(stream=stream, text=text)) if text else b""
