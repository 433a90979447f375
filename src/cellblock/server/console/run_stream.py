"""The live output of a run, as server-sent events for the script of the console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from ..doors.rest.event_stream import STREAM_HEADERS, encode
from ..doors.rest.live_run import LiveRun
from .run_views import describe
from .shown_output import ShownPart, show_events


class OutputParts(BaseModel):
    """`parts`: what a page adds to the output."""

    parts: list[ShownPart]


class RunState(BaseModel):
    """`state`: whether the run waits, runs or has ended. `is_last` marks the last event."""

    status: str
    summary: str
    is_last: bool = False


def stream_run(live: LiveRun, after: int) -> Response:
    """Return the parts after event `after`. Following a run neither keeps it going nor ends it."""
    if live.is_done and after >= len(live.events) + 1:
        return Response(status_code=204)  # browsers do not connect again
    return StreamingResponse(
        _encode_all(live, after), headers=STREAM_HEADERS, media_type="text/event-stream"
    )


async def _encode_all(live: LiveRun, after: int) -> AsyncGenerator[bytes]:
    yield encode("state", _state(live))
    was_started = live.run.is_started
    async with aclosing(live.read(after)) as events:
        async for numbered in events:
            if numbered is None:
                yield b": ping\n\n"
                continue
            number, event = numbered
            parts = await asyncio.to_thread(show_events, [event])
            if parts:
                yield encode("parts", OutputParts(parts=parts), number)
            if not was_started and live.run.is_started:
                was_started = True
                yield encode("state", _state(live))
    # One number more: a client that has it has seen the end.
    yield encode("state", _state(live, is_last=True), len(live.events) + 1)


def _state(live: LiveRun, *, is_last: bool = False) -> RunState:
    status, summary = describe(live)
    return RunState(status=status, summary=summary, is_last=is_last)
