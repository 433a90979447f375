"""Constructors, properties and names of agents."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

import pytest

import cellblock.chat
from cellblock.chat import Agent, AssistantAgent, ConversableAgent, LLMAgent, UserProxyAgent
from cellblock.chat.agent_state import AgentState


def test_the_public_names_are_there_once_and_have_docstrings() -> None:
    names = cellblock.chat.__all__
    assert len(names) == len(set(names))
    for each in (getattr(cellblock.chat, name) for name in names):
        assert inspect.getdoc(each) or not isinstance(each, type | FunctionType), each


def test_agents_have_the_interfaces_of_agents() -> None:
    for kind in (ConversableAgent, AssistantAgent):
        assert isinstance(kind("a", llm_config=False), Agent)
        assert isinstance(kind("a", llm_config=False), LLMAgent)
    agent: Any = ConversableAgent("a", llm_config=False)
    with pytest.raises(AttributeError):
        agent.name = "b"


@pytest.mark.parametrize("kind", [ConversableAgent, UserProxyAgent, AssistantAgent])
def test_an_unknown_human_input_mode_is_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match="must be 'ALWAYS', 'TERMINATE' or 'NEVER', not 'Never'"):
        kind("a", llm_config=False, human_input_mode="Never")


@pytest.mark.parametrize("name", ["is_termination_msg", "max_consecutive_auto_reply"])
def test_a_condition_of_the_wrong_type_is_refused(name: str) -> None:
    arguments: Any = {name: "x"}
    with pytest.raises(TypeError, match=f"{name} must be a .* 'x'"):
        ConversableAgent("a", **arguments)


def test_an_assistant_without_a_model_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    assistant = AssistantAgent("coder")
    for _ in range(2):
        assert assistant.generate_reply([{"role": "user", "content": "hi"}]) == ""
    ConversableAgent("a").generate_reply([{"role": "user", "content": "hi"}])
    assert [each.getMessage() for each in caplog.records] == [
        "Agent 'coder' has no model and answers with an empty default_auto_reply. Pass llm_config=."
    ]


def test_a_message_of_just_terminate_ends_a_conversation_by_default() -> None:
    a = ConversableAgent("a", llm_config=False, human_input_mode="NEVER")
    for content, ends in [
        ("TERMINATE", True),
        ([{"type": "text", "text": "TERMINATE"}], True),
        ("done. TERMINATE", False),
        (None, False),
    ]:
        assert (a.generate_reply([{"content": content}]) is None) is ends


def test_the_assistants_message_asks_for_blocks_that_the_user_proxy_runs() -> None:
    text = AssistantAgent.DEFAULT_SYSTEM_MESSAGE
    for part in ("```python", "```sh", "# filename: <filename>", "`print`", "TERMINATE"):
        assert part in text
    assert text.endswith('Reply "TERMINATE" in the end when everything is done.\n    ')


def test_no_part_of_an_agent_hides_a_method_of_another() -> None:
    owners: dict[str, list[type]] = {}
    parts = [part for part in ConversableAgent.__mro__[1:] if part not in (AgentState, object)]
    for part in parts:
        for name, value in vars(part).items():
            if inspect.isfunction(value) and not name.startswith("__"):
                owners.setdefault(name, []).append(part)
    clashes = {name: types for name, types in owners.items() if len(types) > 1}
    assert clashes == {}
