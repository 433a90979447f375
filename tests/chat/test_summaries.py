"""The summary of a chat: the last message, what a model says, or what a function returns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cellblock.chat import ConversableAgent
from cellblock.errors import ModelError
from tests.chat.own_client import OwnClient, own_model
from tests.chat.scripted import contents, scripted

OPTIONS: dict[str, Any] = {"message": "hi", "max_turns": 1, "silent": True}


class Failing(OwnClient):
    """Answers in the chat, and fails where it is asked for the summary."""

    def __init__(self, config: dict[str, Any], error: Exception) -> None:
        super().__init__(config)
        self._error = error

    def answer(self, params: dict[str, Any]) -> SimpleNamespace:
        if params["messages"][-1]["role"] == "system":
            raise self._error
        return super().answer(params)


def agent_that_fails_with(error: Exception) -> ConversableAgent:
    agent = ConversableAgent("m", human_input_mode="NEVER", llm_config=own_model(Failing))
    agent.register_model_client(Failing, error=error)
    return agent


def test_a_conversation_that_the_model_refuses_has_an_empty_summary_and_a_warning() -> None:
    m = agent_that_fails_with(ModelError("too long", status=400))
    with pytest.warns(UserWarning, match="using reflection_with_llm: too long"):
        result = m.initiate_chat(
            scripted("b", "b1"), summary_method="reflection_with_llm", **OPTIONS
        )
    assert result.summary == ""
    assert contents(result.chat_history) == ["hi", "b1"]


@pytest.mark.parametrize("error", [ModelError("broken", status=401), KeyError("broken")])
def test_another_failure_of_the_model_does_not_lose_the_chat(error: Exception) -> None:
    m, b = agent_that_fails_with(error), scripted("b", "b1")
    with pytest.warns(UserWarning, match="broken"):
        result = m.initiate_chat(b, summary_method="reflection_with_llm", **OPTIONS)
    assert contents(result.chat_history) == ["hi", "b1"]
