"""SocietyOfMindAgent: a group chat inside one agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.chat import SocietyOfMindAgent
from cellblock.models import ReplayChatCompletionClient
from tests.chat.console import console
from tests.chat.group import manager_of, speakers
from tests.chat.scripted import contents, scripted


def society(**options: Any) -> tuple[SocietyOfMindAgent, Any]:
    manager = manager_of(speakers("ab"), max_round=3)
    agent = SocietyOfMindAgent("society", manager, human_input_mode="NEVER", **options)
    return agent, manager


@pytest.mark.parametrize("is_async", [False, True])
def test_the_reply_is_the_last_message_of_the_group(is_async: bool) -> None:
    agent, manager = society()
    user = scripted("user", "more")
    with console():
        if is_async:
            result = asyncio.run(user.a_initiate_chat(agent, message="task", max_turns=2))
        else:
            result = user.initiate_chat(agent, message="task", max_turns=2)
    assert contents(result.chat_history) == ["task", "b1", "more", "b2"]
    assert contents(manager.groupchat.messages) == ["more", "a2", "b2"]
    inner = manager.groupchat.agents[0].chat_messages[manager]
    assert contents(inner)[:2] == ["task", "b1"], "the group knows what was said before"


def test_a_model_can_prepare_the_reply() -> None:
    client = ReplayChatCompletionClient(["prepared"])
    agent, _ = society(llm_config={"config_list": [{"model_client": client}]})
    with console():
        result = scripted("user").initiate_chat(agent, message="task", max_turns=1)
    assert result.summary == "prepared"
    asked = [str(message.content) for message in client.create_calls[0]["messages"]]
    assert "Here is a transcript" in asked[0]
    assert asked[1:4] == ["task", "a1", "b1"]
    assert "standalone response" in asked[-1]


def test_a_function_can_prepare_the_reply() -> None:
    def count(agent: SocietyOfMindAgent, messages: list[Any]) -> str:
        return f"{agent.name} {len(messages)}"

    agent, _ = society(response_preparer=count)
    with console():
        assert agent.generate_reply([{"role": "user", "content": "x"}]) == "society 3"


def test_without_a_group_there_is_no_reply() -> None:
    agent = SocietyOfMindAgent("society", None, human_input_mode="NEVER")
    assert agent.generate_reply([{"role": "user", "content": "x"}]) == ""
