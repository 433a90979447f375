"""Configurations and states that AutoGen 0.7.5 saved are loaded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from cellblock.components import load_component
from cellblock.teams import SelectorGroupChat
from tests.autogen import autogen_python, run_python

__all__ = ["autogen_python"]

pytestmark = [pytest.mark.autogen, pytest.mark.network, pytest.mark.timeout(300)]

SAVE = """\
import asyncio, json
from autogen_agentchat.agents import AssistantAgent, UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient

info = {
    "vision": False, "function_calling": True, "json_output": True, "family": "unknown",
    "structured_output": True,
}

def model(*answers):
    return ReplayChatCompletionClient(list(answers), model_info=info)

async def main():
    call = FunctionCall(id="1", name="transfer_to_user", arguments="{}")
    handoff = CreateResult(
        finish_reason="function_calls", content=[call], cached=False,
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
    )
    ann = AssistantAgent("ann", model(handoff, "second"), handoffs=["user"])
    inner = RoundRobinGroupChat([AssistantAgent("bob", model("from bob"))], max_turns=1, name="in")
    team = SelectorGroupChat(
        [ann, inner, UserProxyAgent("user")],
        model("ann", "in"),
        termination_condition=MaxMessageTermination(2) | TextMentionTermination("from bob"),
    )
    saved = team.dump_component().model_dump()
    await team.run(task="the task")
    print(json.dumps([saved, await team.save_state()]))

asyncio.run(main())
"""


def test_a_team_and_its_state_are_loaded_and_go_on(autogen_python: Path) -> None:
    saved, state = json.loads(run_python(autogen_python, "-c", SAVE))

    async def scenario() -> None:
        team = load_component(saved)
        assert isinstance(team, SelectorGroupChat)
        await team.load_state(state)
        again = await team.save_state()
        thread = again["agent_states"]["SelectorGroupChatManager"]["message_thread"]
        types = [message["type"] for message in thread]
        assert types == [
            "TextMessage",
            "ToolCallRequestEvent",
            "ToolCallExecutionEvent",
            "HandoffMessage",
        ]
        assert sorted(again["agent_states"]) == sorted(state["agent_states"])
        result = await team.run()
        # The loaded model starts again: it chooses "ann", who spoke last, and then "in".
        assert result.messages[-1].to_text() == "from bob"

    asyncio.run(scenario())
