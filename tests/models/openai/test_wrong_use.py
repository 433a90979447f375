"""Errors that the service or the caller of OpenAIChatCompletionClient makes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.errors import ModelError
from cellblock.models import OpenAIChatCompletionClient
from tests.models.http_service import HTTPService, json_reply
from tests.models.openai.test_client import (
    HELLO,
    KEY,
    ask,
    ask_stream,
    client_of,
    completion,
    streamed,
)


def test_an_error_with_status_200_is_quoted() -> None:
    reply = json_reply({"error": {"message": "quota exceeded", "code": 4}})
    message = r"^The server at http.* answered with an error: quota exceeded\.$"
    with pytest.raises(ModelError, match=message):
        ask(reply)
    with pytest.raises(ModelError, match=message):
        ask_stream(reply)


async def test_a_connection_that_breaks_is_not_a_wrong_address() -> None:
    dropped = asyncio.Event()

    async def drop(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
        dropped.set()

    server = await asyncio.start_server(drop, "127.0.0.1", 0)
    url = "http://127.0.0.1:{1}/v1".format(*server.sockets[0].getsockname())
    model = OpenAIChatCompletionClient(model="gpt-4o", api_key=KEY, base_url=url, max_retries=0)
    with pytest.raises(ModelError, match=r"closed the connection too early.*[^.]\. Ask again"):
        await model.create(HELLO)
    await model.close()
    await dropped.wait()
    server.close()


async def test_what_is_no_message_is_not_sent() -> None:
    async with HTTPService(completion(), streamed("Hey")) as service:
        model: Any = client_of(service)
        for wrong in ("hi", HELLO[0], ["hi"], [*HELLO, {"role": "user", "content": "?"}]):
            with pytest.raises(ValueError, match="Pass a message|must be a list"):
                await model.create(wrong)
            with pytest.raises(ValueError, match="Pass a message|must be a list"):
                await anext(model.create_stream(wrong))
        await model.close()
        assert not service.requests
