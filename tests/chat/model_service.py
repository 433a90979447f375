"""A service of OpenAI's interface on loopback, for synchronous tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tests.models.http_service import HTTPService, Reply, json_reply

HELLO = [{"role": "user", "content": "Hi"}]


@contextmanager
def served(*replies: Reply) -> Generator[HTTPService]:
    """Yield a service that answers with `replies`, in order; the last one is repeated."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    service = HTTPService(*replies)
    try:
        asyncio.run_coroutine_threadsafe(service.__aenter__(), loop).result(10)
        yield service
        asyncio.run_coroutine_threadsafe(service.__aexit__(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def completion(content: str | None = "Hey", **message: Any) -> Reply:
    """Return a completion with this text, or with tool calls."""
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": content, **message},
    }
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    return json_reply({"id": "chatcmpl-1", "choices": [choice], "usage": usage})


def entry(service: HTTPService, **settings: Any) -> dict[str, Any]:
    """Return an entry of a `config_list` for `service`."""
    return {
        "model": "gpt-4o",
        "api_key": "sk-secret",
        "base_url": service.url,
        "max_retries": 0,
        **settings,
    }


def tool(name: str = "weather") -> dict[str, Any]:
    """Return a tool without parameters."""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    function: dict[str, Any] = {"name": name, "description": "Get it.", "parameters": parameters}
    return {"type": "function", "function": function}
