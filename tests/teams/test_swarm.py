"""Swarm: handoffs to nobody, and going on after them."""

from __future__ import annotations

import pytest

from cellblock.agents import HandoffMessage, TextMessage
from cellblock.errors import AgentError
from cellblock.teams import Swarm

from .scripted_agent import ScriptedAgent


def handoff(source: str, target: str) -> HandoffMessage:
    return HandoffMessage(content=f"to {target}", source=source, target=target)


def passer(name: str, *steps: HandoffMessage | str) -> ScriptedAgent:
    agent = ScriptedAgent(name, *steps)
    agent.produces = [HandoffMessage, TextMessage]
    return agent


async def test_after_a_handoff_to_nobody_a_handoff_as_the_task_goes_on() -> None:
    team = Swarm([passer("a", handoff("a", "zoe")), passer("b", "done")], max_turns=2)
    with pytest.raises(AgentError, match=r"target zoe is not one of the participants"):
        await team.run(task="go")
    for task in ("go on", handoff("user", "zoe")):
        with pytest.raises(ValueError, match=r"HandoffTermination\('zoe'\)"):
            await team.run(task=task)
    result = await team.run(task=handoff("user", "b"))
    assert [message.source for message in result.messages] == ["user", "b"]


async def test_a_state_with_an_unknown_speaker_is_refused() -> None:
    state = await Swarm([passer("a")]).save_state()
    state["agent_states"]["SwarmGroupChatManager"]["current_speaker"] = "zoe"
    with pytest.raises(ValueError, match="'zoe' is not a participant"):
        await Swarm([passer("a")]).load_state(state)
