"""A loopback HTTP server that sends prepared answers, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of the service. With `hangs` the connection stays open after `body`."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    hangs: bool = False


@dataclass(frozen=True)
class Received:
    """A request that the service received."""

    path: str
    headers: Mapping[str, str]
    body: Any


def json_reply(value: object, status: int = 200, **headers: str) -> Reply:
    """Return a reply with `value` as JSON. Underscores in names of headers mean hyphens."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(body=json.dumps(value).encode(), status=status, headers=named)


def text_reply(text: str) -> Reply:
    """Return a completion of OpenAI's with this text."""
    message = {"role": "assistant", "content": text}
    choice: object = {"index": 0, "message": message, "finish_reason": "stop"}
    return json_reply({"choices": [choice]})


def stream_reply(*chunks: object, done: bool = True, hangs: bool = False) -> Reply:
    """Return a stream of OpenAI's: an event without a name for each chunk, then `[DONE]`."""
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    body = events + ("data: [DONE]\n\n" if done and not hangs else "")
    return Reply(body=body.encode(), content_type="text/event-stream", hangs=hangs)


def event_reply(*events: Mapping[str, object]) -> Reply:
    """Return a stream of Anthropic's: events named by their `type`."""
    body = "".join(f"event: {item['type']}\ndata: {json.dumps(item)}\n\n" for item in events)
    return Reply(body=body.encode(), content_type="text/event-stream")


class HTTPService:
    """Answer requests with `replies`, in order; the last one is repeated.

    `refuse` returns the answer to a request that gets none of them.
    """

    def __init__(
        self, *replies: Reply, refuse: Callable[[Any], Reply | None] = lambda _: None
    ) -> None:
        self._refuse = refuse
        self.requests: list[Received] = []
        self.disconnected = asyncio.Event()
        self._replies = list(replies)
        self._connections = dict[asyncio.Task[None], asyncio.StreamWriter]()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        # A connection that asyncio is accepting when the server is closed would never be closed.
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        tasks = [task for task in asyncio.all_tasks() if "_accept_connection" in repr(task)]
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
        self._server.close()
        for writer in self._connections.values():
            writer.transport.abort()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
        # A client may leave before its request is complete, or has its answer.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            try:
                await self._answer(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Received(first.split()[1], headers, json.loads(body)))
        reply = self._refuse(self.requests[-1].body)
        if reply is None:
            reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        fields = {"content-type": reply.content_type, "connection": "close", **reply.headers}
        if not reply.hangs:
            fields["content-length"] = str(len(reply.body))
        lines = [f"HTTP/1.1 {reply.status} Status", *(f"{n}: {t}" for n, t in fields.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + reply.body)
        if reply.hangs:
            await reader.read()
            self.disconnected.set()
