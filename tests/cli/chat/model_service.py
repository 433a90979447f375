"""A local service with OpenAI's protocol that streams prepared answers, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from subprocess import CompletedProcess
from typing import Any

from tests.cli.cli_process import run_command
from tests.models.http_service import HTTPService, Reply, json_reply, stream_reply

Refusal = Callable[[Any], Reply | None]


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


def longer_than(window: int, *, says_numbers: bool = True) -> Refusal:
    """Return what refuses requests with more than `window` tokens of text, as OpenAI does."""

    def refuse(body: Any) -> Reply | None:
        size = sum(len(_text(message["content"])) // 4 for message in body["messages"])
        if size <= window:
            return None
        text = f"This model's maximum context length is {window} tokens. "
        text += f"However, your messages resulted in {size} tokens." if says_numbers else ""
        return json_reply({"error": {"message": text}}, 400)

    return refuse


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
    def bodies(self) -> list[Any]:
        """The requests."""
        return [request.body for request in self._service.requests]

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
def model_service(
    *replies: Reply | str, refuse: Refusal = lambda _: None
) -> Generator[ModelService]:
    """Start a service that sends `replies` in order; texts are answers of the model."""
    prepared = [answer(reply) if isinstance(reply, str) else reply for reply in replies]
    service, is_ready = HTTPService(*prepared, refuse=refuse), threading.Event()
    loop = asyncio.new_event_loop()
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


def ask(service: ModelService, *arguments: str, given: str = "") -> CompletedProcess[str]:
    """Run `cellblock chat` without a terminal. All code is approved, unless arguments say more."""
    model = ("--base-url", service.url, "--model", "local", "--approve", "never")
    return run_command("chat", *model, *arguments, given=given)
