"""AzureOpenAIChatCompletionClient on a server that sends what Azure sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.components import load_component
from cellblock.errors import ComponentError, ModelError
from cellblock.models import AzureOpenAIChatCompletionClient, UserMessage
from tests.models.http_service import HTTPService, Received, Reply, json_reply

HELLO = [UserMessage(content="Hi", source="user")]
KEY = "azure-secret-123"
FOUND = json_reply({"choices": [{"finish_reason": "stop", "message": {"content": "Hey"}}]})


def ask(reply: Reply, **arguments: Any) -> Received:
    """Return the request that Azure received."""

    async def run() -> Received:
        async with HTTPService(reply) as service:
            model = AzureOpenAIChatCompletionClient(
                model="gpt-4o", azure_endpoint=service.url, api_version="2024-06-01", **arguments
            )
            try:
                await model.create(HELLO)
            finally:
                await model.close()
            return service.requests[0]

    return asyncio.run(run())


def test_the_deployment_is_in_the_address_and_the_key_in_a_header() -> None:
    request = ask(FOUND, azure_deployment="mine", api_key=KEY)
    path = "/openai/deployments/mine/chat/completions?api-version=2024-06-01"
    assert (request.path, request.headers["api-key"]) == (path, KEY)
    assert request.body["messages"][0]["content"] == "Hi"


def test_a_token_of_entra_id_is_sent() -> None:
    async def provide() -> str:
        return "token2"

    assert ask(FOUND, azure_ad_token="token1").headers["authorization"] == "Bearer token1"
    request = ask(FOUND, azure_ad_token_provider=lambda: "token3")
    assert request.headers["authorization"] == "Bearer token3"
    request = ask(FOUND, azure_ad_token_provider=provide)
    assert request.headers["authorization"] == "Bearer token2"


def test_a_filtered_prompt_is_a_model_error() -> None:
    error = {"code": "content_filter", "message": "The prompt triggered the policy.", "status": 400}
    reply = json_reply({"error": error}, 400, x_request_id="r9")
    with pytest.raises(ModelError, match=r"Azure OpenAI .* 400, request ID r9: The prompt trigg"):
        ask(reply, api_key=KEY, max_retries=0)


def test_a_dump_has_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    model = AzureOpenAIChatCompletionClient(
        model="gpt-4o",
        azure_endpoint="https://x.openai.azure.com",
        azure_deployment="mine",
        api_version="2024-06-01",
        azure_ad_token=KEY,
    )
    saved = model.dump_component().to_json()
    assert KEY not in saved + repr(model)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    assert load_component(saved).dump_component().to_json() == saved
    monkeypatch.delenv("AZURE_OPENAI_API_KEY")
    with pytest.raises(ComponentError, match="Azure client cannot be created"):
        load_component(saved)


def test_a_token_provider_cannot_be_saved() -> None:
    model = AzureOpenAIChatCompletionClient(
        model="gpt-4o",
        azure_endpoint="https://x.openai.azure.com",
        api_version="2024-06-01",
        azure_ad_token_provider=lambda: "token",
    )
    with pytest.raises(ComponentError, match="azure_ad_token_provider cannot be saved"):
        model.dump_component()
