"""Which service OpenAI's client asks about a model, and with which key."""

from __future__ import annotations

import asyncio

import pytest

from cellblock.errors import ModelError
from cellblock.models import ChatCompletionClient, OpenAIChatCompletionClient, UserMessage

KEY = "sk-secret-1234567890"
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
