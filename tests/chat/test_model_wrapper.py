"""OpenAIWrapper: requests to the models of a list of configurations."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from pydantic import BaseModel

from cellblock.chat import ConversableAgent, OpenAIWrapper
from cellblock.errors import ModelError
from cellblock.models import CreateResult, FunctionCall, ReplayChatCompletionClient, RequestUsage
from tests.chat.console import console
from tests.chat.model_service import HELLO, completion, entry, served, tool
from tests.chat.own_client import OwnClient, own_model
from tests.models.http_service import Reply, json_reply, stream_reply

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_API_KEY", "GROQ_API_KEY")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def echo(**options: Any) -> OpenAIWrapper:
    """Return a wrapper whose only model is an `OwnClient`."""
    wrapper = OpenAIWrapper(**own_model(device="cpu"))
    wrapper.register_model_client(OwnClient, **options)
    return wrapper


def replay(*answers: str | CreateResult, **settings: Any) -> OpenAIWrapper:
    """Return a wrapper whose only model gives `answers`."""
    client = ReplayChatCompletionClient(list(answers))
    return OpenAIWrapper(config_list=[{"model": "m", "model_client": client, **settings}])


def text_of(response: Any) -> Any:
    return OpenAIWrapper.extract_text_or_completion_object(response)[0]


def test_a_model_can_be_named_with_each_request() -> None:
    with served(completion()) as service:
        settings = entry(service)
        del settings["model"]
        wrapper = OpenAIWrapper(config_list=[settings], cache_seed=None)
        assert wrapper.create(messages=HELLO, model="gpt-4").model == "gpt-4"
        with pytest.raises(ValueError, match="has no model"):
            wrapper.create(messages=HELLO)
    assert [request.body["model"] for request in service.requests] == ["gpt-4"]


def test_a_model_that_is_not_known_can_do_everything() -> None:
    with served(completion()) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service, model="my-llama")], cache_seed=None)
        wrapper.create(messages=HELLO, tools=[tool()])
    assert service.requests[0].body["tools"][0]["function"]["name"] == "weather"


def test_the_error_of_the_last_entry_is_raised() -> None:
    with served(json_reply({"error": {"message": "No credit."}}, status=429)) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service), entry(service)], cache_seed=None)
        with pytest.raises(ModelError, match="No credit"):
            wrapper.create(messages=HELLO)
    assert len(service.requests) == 2


def test_functions_in_the_old_style_are_offered_as_tools() -> None:
    answer = CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall("1", '{"a": 1}', "weather")],
        usage=RequestUsage(1, 1),
        cached=False,
    )
    message = text_of(
        replay(answer).create(messages=HELLO, functions=[tool()["function"]])
    ).model_dump()
    assert message["function_call"] == {"name": "weather", "arguments": '{"a": 1}'}
    assert message["tool_calls"] is None


def test_json_of_a_class_can_be_asked_for() -> None:
    class City(BaseModel):
        name: str

    with served(completion('{"name": "Rome"}')) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service)], cache_seed=None)
        response = wrapper.create(messages=HELLO, response_format=City)
    assert City.model_validate_json(text_of(response)).name == "Rome"
    assert service.requests[0].body["response_format"]["type"] == "json_schema"


def test_the_price_of_a_model_is_known_or_given(caplog: pytest.LogCaptureFixture) -> None:
    with served(completion()) as service:

        def cost(**settings: Any) -> float:
            wrapper = OpenAIWrapper(config_list=[entry(service, **settings)], cache_seed=None)
            return wrapper.create(messages=HELLO).cost

        assert cost() == 0.0065
        assert cost(price=[1, 2]) == 1.2
        assert cost(model="my-llama") == 0
        assert "Model my-llama is not found. The cost will be 0." in caplog.text
        with pytest.raises(ValueError, match="price is \\[1\\]"):
            cost(price=[1])


def test_several_answers_are_asked_for_one_by_one() -> None:
    with served(completion("one"), completion("two")) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service)], cache_seed=None)
        response = wrapper.create(messages=HELLO, n=2)
    assert OpenAIWrapper.extract_text_or_completion_object(response) == ["one", "two"]
    assert [choice.index for choice in response.choices] == [0, 1]
    assert response.usage.total_tokens == 2200
    assert "n" not in service.requests[0].body


def test_the_price_of_a_client_of_models_is_that_of_the_named_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert replay("x", model="gpt-4").create(messages=HELLO).cost > 0
    assert replay("x").create(messages=HELLO).cost == 0
    assert caplog.text == ""


def test_another_configuration_keeps_registered_clients_and_usage() -> None:
    wrapper = echo()
    wrapper.create(messages=HELLO)
    other = wrapper.with_config(**own_model(), tools=[tool()])
    other.create(messages=HELLO)
    assert other._clients == wrapper._clients
    assert other.total_usage_summary is not None
    assert other.total_usage_summary["total_cost"] == 1
    (client,) = wrapper._clients
    assert isinstance(client, OwnClient)
    assert client.requests[1]["tools"] == [tool()]


def test_an_answer_is_printed_while_it_arrives() -> None:
    pieces = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("He", "llo")]
    end: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    with served(stream_reply(*pieces, end)) as service, console() as screen:
        wrapper = OpenAIWrapper(config_list=[entry(service, stream=True)], cache_seed=None)
        assert text_of(wrapper.create(messages=HELLO)) == "Hello"
        assert screen.text == "\033[32mHello\033[0m\n\n"
        assert text_of(asyncio.run(wrapper.a_create(messages=HELLO))) == "Hello"
    assert screen.text == "\033[32mHello\033[0m\n\n" * 2


def test_the_terminal_is_not_left_green_when_a_stream_breaks_off() -> None:
    broken = {"choices": [{"index": 0, "delta": {"content": "He"}}]}
    with served(stream_reply(broken, {"error": {"message": "No."}})) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service, stream=True)], cache_seed=None)
        with console() as screen, pytest.raises(ModelError):
            wrapper.create(messages=HELLO)
    assert screen.text == "\033[32mHe\033[0m\n\n"


def test_claude_is_asked_over_its_own_interface() -> None:
    reply = json_reply(
        {
            "id": "1",
            "role": "assistant",
            "content": [{"type": "text", "text": "Hey"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 1},
        }
    )
    with served(reply) as service:
        settings = entry(service, model="claude-9", api_type="anthropic", temperature=0)
        response = OpenAIWrapper(config_list=[settings], cache_seed=None).create(messages=HELLO)
    assert text_of(response) == "Hey"
    (request,) = service.requests
    assert request.path == "/v1/messages"
    assert request.body["temperature"] == 0


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, "No API key. Pass api_key=, or set OPENAI_API_KEY"),
        ({"api_type": "anthropic"}, "set ANTHROPIC_API_KEY"),
        ({"api_type": "groq"}, "set GROQ_API_KEY"),
        ({"api_type": "azure", "api_key": "k"}, "has no 'base_url'"),
        ({"api_type": "azure", "api_key": "k", "base_url": "http://x"}, "has no 'api_version'"),
        ({"api_type": "bedrock"}, "'bedrock' is not offered"),
        ({"api_type": "bogus", "api_key": "k"}, "'bogus' .* is not known. Use one of"),
        ({"model_client": "OwnClient"}, "'model_client' .* is 'OwnClient'"),
        ({"api_key": "k", "api_rate_limit": 0}, "api_rate_limit is 0"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused_at_once(
    settings: dict[str, Any], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_VERSION", raising=False)
    with pytest.raises(ValueError, match=error):
        OpenAIWrapper(config_list=[{"model": "m", **settings}])


def test_a_service_of_any_name_can_have_an_address_and_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    with served(completion()) as service:
        for name in ("openai", "groq", "bogus"):
            settings = entry(
                service, api_type=name, api_key="", project="p1", default_query={"a": "1"}
            )
            OpenAIWrapper(config_list=[settings], cache_seed=None).create(messages=HELLO)
    for request in service.requests:
        assert (request.headers["openai-project"], request.path[-4:]) == ("p1", "?a=1")
    assert len(service.requests) == 3


@pytest.mark.parametrize("config_list", [{"model": "m"}, ["gpt-4"], "x"])
def test_a_config_list_of_another_type_is_refused(config_list: Any) -> None:
    with pytest.raises(ValueError, match="config_list must be a list of dicts"):
        OpenAIWrapper(config_list=config_list)
    with pytest.raises(ValueError, match="config_list must be a list of dicts"):
        ConversableAgent("a", llm_config={"config_list": config_list})


def test_a_client_of_models_answers_synchronous_and_asynchronous_calls() -> None:
    wrapper = replay("one", "two", "three")
    assert text_of(wrapper.create(messages=HELLO)) == "one"
    assert text_of(asyncio.run(wrapper.a_create(messages=HELLO))) == "two"
    assert wrapper.create(messages=HELLO).model == "m"
    with pytest.raises(ValueError, match="No more mock responses"):
        wrapper.create(messages=HELLO)


def test_the_connections_of_a_client_serve_loops_one_after_the_other() -> None:
    with served(completion()) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service)], cache_seed=None)
        wrapper.create(messages=HELLO)
        for _ in range(2):
            assert text_of(asyncio.run(wrapper.a_create(messages=HELLO))) == "Hey"
        assert text_of(wrapper.create(messages=HELLO)) == "Hey"


def test_a_class_of_ones_own_is_created_with_its_entry_and_asked() -> None:
    wrapper = echo(suffix="!")
    response = wrapper.create(messages=HELLO, temperature=0)
    assert text_of(response) == "Hi!"
    assert (response.cost, response.config_id) == (0.5, 0)
    (client,) = wrapper._clients
    assert isinstance(client, OwnClient)
    assert client.config["device"] == "cpu"
    assert client.requests == [
        {
            "messages": HELLO,
            "temperature": 0,
            "model": "x",
            "model_client_cls": "OwnClient",
            "device": "cpu",
        }
    ]


def test_a_class_of_ones_own_does_not_block_the_loop() -> None:
    wrapper = echo()
    asyncio.run(wrapper.a_create(messages=HELLO))
    (client,) = wrapper._clients
    assert isinstance(client, OwnClient)
    assert client.threads != [threading.get_ident()]


def test_an_error_of_ones_own_class_is_raised_at_once() -> None:
    class BrokenClient(OwnClient):
        def create(self, params: dict[str, Any]) -> Any:
            raise LookupError("out of order")

    entries: list[dict[str, Any]] = [
        {"model_client_cls": "BrokenClient"},
        {"model_client_cls": "OwnClient"},
    ]
    wrapper = OpenAIWrapper(config_list=entries, cache_seed=None)
    wrapper.register_model_client(BrokenClient)
    wrapper.register_model_client(OwnClient)
    with pytest.raises(LookupError, match="out of order"):
        wrapper.create(messages=HELLO)


def test_requests_wait_for_the_rate_limit() -> None:
    wrapper = replay("one", "two", "three", api_rate_limit=20)
    start = time.monotonic()
    wrapper.create(messages=HELLO)
    wrapper.create(messages=HELLO)
    asyncio.run(wrapper.a_create(messages=HELLO))
    assert time.monotonic() - start >= 0.1


@pytest.mark.parametrize("name", ["api_key", "base_url", "config_list"])
def test_a_request_does_not_say_where_to_send_it(name: str) -> None:
    with pytest.raises(ValueError, match=f"A request cannot have {name}"):
        replay("x").create(messages=HELLO, **{name: "y"})


def test_a_request_can_have_a_timeout_of_its_own() -> None:
    with served(Reply(body=b"", hangs=True)) as service:
        wrapper = OpenAIWrapper(config_list=[entry(service)], cache_seed=None)
        with pytest.raises(ModelError, match="did not answer in time"):
            wrapper.create(messages=HELLO, timeout=0.2)


def test_the_completions_interface_is_refused() -> None:
    with pytest.raises(ValueError, match="Pass messages="):
        replay("x").create(prompt="Once upon a time")


def test_another_mode_of_the_usage_is_refused() -> None:
    wrapper = replay("one")
    wrapper.create(messages=HELLO)
    with pytest.raises(ValueError, match='Invalid mode: sum, choose from "actual", "total"'):
        wrapper.print_usage_summary("sum")
