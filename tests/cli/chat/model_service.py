"""A local service with OpenAI's protocol that streams prepared answers, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager

from tests.models.http_service import HTTPService, Reply, stream_reply


def answer(text: str, *, hangs: bool = False, finish_reason: str = "stop") -> Reply:
    """Return a stream of `text` in pieces, and of its usage unless it `hangs` after the text."""
    pieces = [text[start : start + 7] for start in range(0, len(text), 7)]
    chunks: list[object] = [
        {"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces
    ]
    if not hangs:
        end: object = {"index": 0, "delta": {}, "finish_reason": finish_reason}
        usage = {"prompt_tokens": 1000, "completion_tokens": 200}
        chunks.append({"choices": [end], "usage": usage})
    return stream_reply(*chunks, hangs=hangs)


class ModelService:
    """The address of a running service, and what it was asked."""

    def __init__(self, service: HTTPService) -> None:
        self._service = service
        self.url = f"{service.url}/v1"

    def messages(self, request: int = -1) -> list[tuple[str, str]]:
        """Return the role and the text of each message of a request."""
        body = self._service.requests[request].body
        return [(message["role"], _text(message["content"])) for message in body["messages"]]

    @property
    def models(self) -> list[str]:
        """The models that were asked."""
        return [request.body["model"] for request in self._service.requests]

    @property
    def request_count(self) -> int:
        """How often the service was asked."""
        return len(self._service.requests)


def _text(content: str | list[dict[str, str]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "<image>") for part in content)


@contextmanager
def model_service(*replies: Reply | str) -> Generator[ModelService]:
    """Start a service that sends `replies` in order; texts are answers of the model."""
    prepared = [answer(reply) if isinstance(reply, str) else reply for reply in replies]
    service, is_ready, loop = HTTPService(*prepared), threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with service:
            is_ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert is_ready.wait(10)
        yield ModelService(service)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
