"""Replies of an agent by its model."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from cellblock.chat import ConversableAgent, OpenAIWrapper
from cellblock.models import (
    CassetteChatCompletionClient,
    CreateResult,
    ReplayChatCompletionClient,
)
from tests.chat.model_service import HELLO


def config(*answers: str | CreateResult, **settings: Any) -> dict[str, Any]:
    return {
        "config_list": [{"model_client": ReplayChatCompletionClient(list(answers))}],
        **settings,
    }


def agent(*answers: str | CreateResult, **settings: Any) -> ConversableAgent:
    return ConversableAgent(
        "bob", system_message="Be brief.", llm_config=config(*answers, **settings)
    )


def requests(llm_config: Any) -> list[dict[str, Any]]:
    return llm_config["config_list"][0]["model_client"].create_calls


def test_an_asynchronous_reply_is_the_same() -> None:
    bob = agent("Hey", "Ho")
    assert asyncio.run(bob.a_generate_oai_reply(messages=HELLO)) == (True, "Hey")
    assert asyncio.run(bob.a_generate_oai_reply(messages=HELLO)) == (True, "Ho")


def test_an_agent_without_a_model_has_no_reply() -> None:
    bob = ConversableAgent("bob", llm_config=False)
    assert bob.generate_oai_reply(messages=HELLO) == (False, None)
    assert (bob.get_actual_usage(), bob.get_total_usage()) == (None, None)
    with pytest.raises(ValueError, match="Agent 'bob' has no model. Pass llm_config="):
        bob.register_model_client(dict)


def test_another_client_can_be_asked() -> None:
    bob, other = agent("mine"), OpenAIWrapper(**config("other"))
    assert bob.generate_oai_reply(messages=HELLO, config=other) == (True, "other")


def test_an_empty_answer_is_no_reply_and_a_warning() -> None:
    class Silent(OpenAIWrapper):
        def extract_text_or_completion_object(self, response: Any) -> list[Any]:  # type: ignore[override]
            return [None]

    with pytest.warns(UserWarning, match="is None."):
        assert agent("x").generate_oai_reply(messages=HELLO, config=Silent(**config("y"))) == (
            False,
            None,
        )


def test_model_clients_survive_the_copy_of_the_configuration() -> None:
    llm_config = config("Hey", temperature=0)
    bob = ConversableAgent("bob", llm_config=llm_config)
    bob.generate_oai_reply(messages=HELLO)
    assert len(requests(llm_config)) == 1
    assert isinstance(bob.llm_config, dict)
    assert bob.llm_config is not llm_config
    assert bob.llm_config["config_list"] is not llm_config["config_list"]
    single = {"model_client": ReplayChatCompletionClient(["one"])}
    assert ConversableAgent("eve", llm_config=single).generate_oai_reply(messages=HELLO)[1] == "one"


def test_the_model_of_an_agent_can_be_recorded_and_replayed(tmp_path: Path) -> None:
    def reply(*real: str) -> Any:
        model = ReplayChatCompletionClient(list(real)) if real else None
        cassette = CassetteChatCompletionClient(tmp_path / "turns.json", model)
        llm_config = {"config_list": [{"model_client": cassette}], "temperature": 0}
        bob = ConversableAgent("bob", llm_config=llm_config, human_input_mode="NEVER")
        return bob.generate_reply(messages=HELLO)

    assert reply("Hey") == "Hey"
    assert reply() == "Hey"


def test_a_value_that_cannot_be_copied_is_refused() -> None:
    with pytest.raises(TypeError, match="Please implement __deepcopy__ method"):
        ConversableAgent("bob", llm_config=config("x", lock=threading.Lock()))


def test_a_model_without_credentials_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ValueError, match="No API key. Pass api_key=, or set OPENAI_API_KEY"):
        ConversableAgent("bob", llm_config={"config_list": [{"model": "gpt-4"}]})
    entries = [{"model": "m", "api_key": "k"}, {"model": ""}]
    with pytest.raises(ValueError, match="specify a non-empty 'model'"):
        ConversableAgent("bob", llm_config={"config_list": entries})


def test_a_subclass_replaces_the_reply_in_both_forms() -> None:
    class Parrot(ConversableAgent):
        def generate_oai_reply(
            self, messages: Any = None, sender: Any = None, config: Any = None
        ) -> tuple[bool, str]:
            return True, messages[-1]["content"] * 2

    parrot = Parrot("parrot", llm_config=False)
    assert asyncio.run(parrot.a_generate_oai_reply(messages=HELLO)) == (True, "HiHi")


def test_a_client_that_overrides_create_is_asked_in_both_forms() -> None:
    class Shout(OpenAIWrapper):
        def create(self, **config: Any) -> Any:
            response = super().create(**config)
            response.choices[0].message.content += "!"
            return response

    bob = agent("x")
    bob.client = Shout(**config("Hey", "Ho"))
    assert bob.generate_oai_reply(messages=HELLO) == (True, "Hey!")
    assert asyncio.run(bob.a_generate_oai_reply(messages=HELLO)) == (True, "Ho!")


def test_a_cache_of_the_agent_keeps_its_answers() -> None:
    from cellblock.chat.models.cache import InMemoryCache

    bob = agent("one", "two")
    bob.client_cache = InMemoryCache()
    assert [bob.generate_oai_reply(messages=HELLO)[1] for _ in range(2)] == ["one", "one"]
