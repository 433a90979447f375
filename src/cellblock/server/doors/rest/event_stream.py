"""The events of a run as server-sent events, and the answer that sends them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal, assert_never

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ....events import (
    Display,
    Ended,
    Event,
    FileCreated,
    Outcome,
    Output,
    OutputTruncated,
    PullProgress,
    Started,
)
from ...refusals import InvalidRequest
from .answers import ErrorDetail, RunUsage
from .live_run import Failure, LiveRun

STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_RETRY_MILLISECONDS = 1000
MAX_POSITION = 10**15 - 1  # of an event that a client names
_MAX_DIGITS = len(str(MAX_POSITION))


class StartedEvent(BaseModel):
    """`started`: the code has started."""

    language: str


class OutputEvent(BaseModel):
    """`output`: the code wrote text."""

    stream: Literal["stdout", "stderr"]
    text: str


class TruncatedEvent(BaseModel):
    """`output_truncated`: output over the limit was left out here."""

    stdout_bytes: int
    stderr_bytes: int


class DisplayEvent(BaseModel):
    """`display`: the code displayed rich output, or its last expression has a value."""

    data: dict[str, Any] = Field(description="A MIME bundle.")
    metadata: dict[str, Any]


class FileEvent(BaseModel):
    """`file`: the code created or changed a file."""

    path: str
    size_bytes: int


class EndedEvent(BaseModel):
    """`ended`: the last event of a run. The fields are those of the result."""

    exit_code: int
    outcome: Outcome
    limit: str | None
    message: str = Field(description="Text that follows the output, such as why the run ended.")
    queue_seconds: float
    usage: RunUsage
    session_restored: bool
    notice: str
    lost_blocks: int


EVENT_MODELS: dict[str, type[BaseModel]] = {
    "started": StartedEvent,
    "output": OutputEvent,
    "output_truncated": TruncatedEvent,
    "display": DisplayEvent,
    "file": FileEvent,
    "ended": EndedEvent,
    "failed": ErrorDetail,
}


def read_position(request: Request) -> int:
    """Return the number of the last event that the client has; 0 without one.

    Browsers send the header Last-Event-ID. Others can use the query parameter `after`. Raise
    `InvalidRequest` if it is not a number.
    """
    header, query = request.headers.get("last-event-id"), request.query_params.get("after")
    for given in (header, query):
        if given and not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
            raise InvalidRequest(
                "Last-Event-ID must be the number of an event. Send the last 'id' that you have."
            )
    return int(header or query or 0)


class EventStream(StreamingResponse):
    """The answer with the events of a run after number `after`. Sending it keeps the run going."""

    def __init__(self, live: LiveRun, after: int = 0) -> None:
        super().__init__(
            _encode_all(live, after),
            headers=STREAM_HEADERS,
            media_type="text/event-stream",
        )
        self._live = live

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        with self._live.reading():
            await super().__call__(scope, receive, send)


async def _encode_all(live: LiveRun, after: int) -> AsyncGenerator[bytes]:
    yield f"retry: {_RETRY_MILLISECONDS}\n\n".encode()
    if not after:
        yield encode("run", live.info())
    async with aclosing(live.read(after)) as events:
        async for numbered in events:
            if numbered is None:
                yield b": ping\n\n"
            elif (named := _name_event(live, numbered[1])) is not None:
                yield encode(*named, number=numbered[0])


def encode(name: str, data: BaseModel, number: int | None = None) -> bytes:
    """Return a server-sent event. JSON has no line breaks, so the data is one line."""
    identifier = "" if number is None else f"id: {number}\n"
    return f"{identifier}event: {name}\ndata: {data.model_dump_json()}\n\n".encode()


def _name_event(live: LiveRun, event: Event | Failure) -> tuple[str, BaseModel] | None:
    """Return the name and the data of an event; None if clients do not see it."""
    match event:
        case Started():
            return "started", StartedEvent(language=event.language)
        case Output():
            return "output", OutputEvent(stream=event.stream, text=event.text)
        case OutputTruncated():
            return "output_truncated", TruncatedEvent(
                stdout_bytes=event.stdout_bytes, stderr_bytes=event.stderr_bytes
            )
        case Display():
            return "display", DisplayEvent(data=dict(event.data), metadata=dict(event.metadata))
        case FileCreated():
            return "file", FileEvent(path=event.path, size_bytes=event.size_bytes)
        case Ended():
            return "ended", _ended(live, event)
        case Failure():
            return "failed", ErrorDetail.of(event.error)
        case PullProgress():  # images are pulled when a session is created
            return None
        case _:
            assert_never(event)


def _ended(live: LiveRun, event: Ended) -> EndedEvent:
    return EndedEvent(
        exit_code=event.exit_code,
        outcome=event.outcome,
        limit=event.limit,
        message=event.message,
        queue_seconds=live.run.queue_seconds,
        usage=RunUsage.of(event.usage),
        session_restored=event.session_restored,
        notice=event.notice,
        lost_blocks=event.lost_blocks,
    )
