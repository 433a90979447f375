"""Which service OpenAI's client asks about a model, and with which key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.errors import ModelError
from cellblock.models import (
    AnthropicChatCompletionClient,
    ChatCompletionClient,
    ModelInfo,
    OpenAIChatCompletionClient,
    UserMessage,
)
from tests.models.http_service import HTTPService, json_reply

KEY = "sk-secret-1234567890"
INFO = ModelInfo(
    vision=False, function_calling=False, json_output=False, family="x", structured_output=False
)
HELLO = [UserMessage(content="Hi", source="user")]


@pytest.mark.parametrize(
    ("model", "variable", "host"),
    [
        ("gpt-4o", "OPENAI_API_KEY", "https://api.openai.com"),
        ("gemini-2.0-flash", "GEMINI_API_KEY", "https://generativelanguage.googleapis.com"),
        ("claude-3-5-sonnet-20241022", "ANTHROPIC_API_KEY", "https://api.anthropic.com"),
        ("Llama-3.3-8B-Instruct", "LLAMA_API_KEY", "https://api.llama.com"),
    ],
)
def test_a_model_is_asked_at_its_service_with_its_key(
    model: str, variable: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # nothing leaves this machine
    monkeypatch.setenv("OPENAI_API_KEY", "" if model == "gpt-4o" else "another key")
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ValueError, match=f"No API key. Pass api_key=, or set {variable}"):
        OpenAIChatCompletionClient(model=model)
    monkeypatch.setenv(variable, KEY)

    async def run() -> None:
        client = OpenAIChatCompletionClient(model=model, max_retries=0)
        assert "base_url" not in client.dump_component().config
        with pytest.raises(ModelError, match=host):
            await client.create(HELLO)
        await client.close()

    asyncio.run(run())


def test_an_address_of_ones_own_has_openais_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    OpenAIChatCompletionClient(model="gemini-2.0-flash", base_url="http://127.0.0.1:1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    OpenAIChatCompletionClient(model="gemini-2.0-flash")


@pytest.mark.parametrize("name", ["OpenAIChatCompletionClient", "openai_chat_completion_client"])
def test_autogens_short_name_of_the_provider_is_loaded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    saved = {"provider": name, "config": {"model": "gpt-4o"}}
    assert isinstance(ChatCompletionClient.load_component(saved), OpenAIChatCompletionClient)


@pytest.mark.parametrize("kind", [OpenAIChatCompletionClient, AnthropicChatCompletionClient])
async def test_an_empty_key_is_for_a_server_that_asks_for_none(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    async with HTTPService(json_reply({}, 404)) as service:
        model = kind(model="m", model_info=INFO, api_key="", base_url=service.url)
        for client in (model, ChatCompletionClient.load_component(model.dump_component())):
            with pytest.raises(ModelError):
                await client.create(HELLO)
            await client.close()
        for request in service.requests:
            assert KEY not in str(request.headers)
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ValueError, match="No API key"):  # an empty key of OpenAI's
        OpenAIChatCompletionClient(model="gpt-4o", api_key="")
