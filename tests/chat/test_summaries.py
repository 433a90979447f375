"""The summary of a chat: the last message, what a model says, or what a function returns."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from cellblock.chat import Agent, ConversableAgent
from cellblock.errors import ModelError
from tests.chat.scripted import contents, scripted

OPTIONS: dict[str, Any] = {"message": "hi", "max_turns": 1, "silent": True}


class Summarizer:
    """A model that keeps what it was asked."""

    def __init__(self, config: dict[str, Any], asked: list[Any], error: Exception | None) -> None:
        self.asked = asked
        self.error = error

    def create(self, params: dict[str, Any]) -> Any:
        self.asked.append(params["messages"])
        if self.error and params["messages"][-1]["role"] == "system":
            raise self.error
        return SimpleNamespace(model="m")

    def message_retrieval(self, response: Any) -> list[str]:
        return ["in short TERMINATE"]

    def cost(self, response: Any) -> float:
        return 0.5

    @staticmethod
    def get_usage(response: Any) -> dict[str, Any]:
        return {}


def agent_with_model(asked: list[Any], error: Exception | None = None) -> ConversableAgent:
    config = {"model": "m", "model_client_cls": "Summarizer"}
    agent = ConversableAgent(
        "m", human_input_mode="NEVER", llm_config={"config_list": [config], "cache_seed": None}
    )
    agent.register_model_client(Summarizer, asked=asked, error=error)
    return agent


def test_the_last_message_is_the_summary_without_the_word_terminate() -> None:
    b = scripted("b", "It is TERMINATE done. TERMINATE")
    assert scripted("a").initiate_chat(b, **OPTIONS).summary == "It is  done. "


def test_texts_of_a_message_of_parts_are_the_summary() -> None:
    image = {"type": "image_url", "image_url": {"url": "http://x"}}
    parts = [{"type": "text", "text": "TERMINATE one"}, image, {"type": "text", "text": "two"}]
    result = scripted("a").initiate_chat(scripted("b", {"content": parts}), **OPTIONS)
    assert result.summary == " one\ntwo"


def test_a_chat_without_messages_has_an_empty_summary() -> None:
    assert scripted("a").initiate_chat(scripted("b"), message="hi", max_turns=0).summary == ""


def test_the_summary_is_empty_if_there_is_no_method() -> None:
    b = scripted("b", "done")
    assert scripted("a").initiate_chat(b, summary_method=None, **OPTIONS).summary == ""


def test_a_function_gets_its_arguments_and_the_callers_stay_as_they_are() -> None:
    def summary(sender: Agent, recipient: Agent, arguments: dict[str, Any]) -> Any:
        return sender.name, recipient.name, arguments

    given = {"z": 1}
    result = scripted("a").initiate_chat(
        scripted("b"), summary_method=summary, summary_args=given, **OPTIONS
    )
    assert result.summary == ("a", "b", {"z": 1, "cache": None})
    assert given == {"z": 1}


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_model_is_asked_for_the_summary_of_the_conversation(way: str) -> None:
    asked: list[Any] = []
    m, b = agent_with_model(asked), scripted("b", "b1")
    options: dict[str, Any] = {**OPTIONS, "summary_method": "reflection_with_llm"}
    if way == "sync":
        result = m.initiate_chat(b, **options)
    else:
        result = asyncio.run(m.a_initiate_chat(b, **options))
    assert result.summary == "in short TERMINATE"
    assert contents(asked[0]) == ["hi", "b1", ConversableAgent.DEFAULT_SUMMARY_PROMPT]
    assert asked[0][-1]["role"] == "system"


def test_prompt_and_role_of_the_question_can_be_chosen() -> None:
    asked: list[Any] = []
    agent_with_model(asked).initiate_chat(
        scripted("b", "b1"),
        summary_method="reflection_with_llm",
        summary_args={"summary_prompt": "In a word?", "summary_role": "user"},
        **OPTIONS,
    )
    assert asked[0][-1] == {"role": "user", "content": "In a word?"}


@pytest.mark.parametrize("wrong", [{"summary_prompt": 5}, {"summary_role": 5}])
def test_prompt_and_role_must_be_text(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be a string"):
        agent_with_model([]).initiate_chat(
            scripted("b"), summary_method="reflection_with_llm", summary_args=wrong, **OPTIONS
        )


def test_a_conversation_that_the_model_refuses_has_an_empty_summary_and_a_warning() -> None:
    m = agent_with_model([], ModelError("too long", status=400))
    with pytest.warns(UserWarning, match="using reflection_with_llm: too long"):
        result = m.initiate_chat(
            scripted("b", "b1"), summary_method="reflection_with_llm", **OPTIONS
        )
    assert result.summary == ""
    assert contents(result.chat_history) == ["hi", "b1"]


@pytest.mark.parametrize("error", [ModelError("broken", status=401), KeyError("broken")])
def test_another_failure_of_the_model_does_not_lose_the_chat(error: Exception) -> None:
    m, b = agent_with_model([], error), scripted("b", "b1")
    with pytest.warns(UserWarning, match="broken"):
        result = m.initiate_chat(b, summary_method="reflection_with_llm", **OPTIONS)
    assert contents(result.chat_history) == ["hi", "b1"]


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("other", "must be a string chosen from"),
        (4, "must be a string chosen from"),
        ("reflection_with_llm", "llm client must be set in either the recipient or sender"),
    ],
)
def test_a_method_that_cannot_work_is_refused_before_the_chat(method: Any, error: str) -> None:
    a, b = scripted("a"), scripted("b", "b1")
    with pytest.raises(AssertionError, match=error):
        a.initiate_chat(b, summary_method=method, **OPTIONS)
    assert not a.chat_messages[b]
