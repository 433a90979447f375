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


def test_an_agent_shows_what_it_was_made_with() -> None:
    a = ConversableAgent("a", llm_config=False)
    assert (a.name, a.system_message, a.description) == (
        "a", "You are a helpful AI Assistant.", "You are a helpful AI Assistant.",
    )  # fmt: skip
    assert (a.code_executor, a.use_docker, a.function_map, a.client) == (None, None, {}, None)
    a.update_system_message("new")
    a.description = "for tests"
    assert (a.system_message, a.description) == ("new", "for tests")
    with pytest.raises(AttributeError):
        a.name = "b"  # pyright: ignore[reportAttributeAccessIssue]


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


def test_an_agent_can_begin_with_earlier_messages() -> None:
    b = ConversableAgent("b", llm_config=False)
    a = ConversableAgent(
        "a", llm_config=False, chat_messages={b: [{"role": "user", "content": "old"}]}
    )
    assert a.last_message(b) == {"role": "user", "content": "old"}
    a.receive("from another", ConversableAgent("c", llm_config=False), False, silent=True)
    a.reset()
    assert a.last_message() is None


def test_the_description_of_a_user_proxy_depends_on_its_mode() -> None:
    described = {
        mode: UserProxyAgent("u", human_input_mode=mode, code_execution_config=False).description
        for mode in ("ALWAYS", "TERMINATE", "NEVER")
    }
    assert described == UserProxyAgent.DEFAULT_USER_PROXY_AGENT_DESCRIPTIONS
    own = UserProxyAgent("u", code_execution_config=False, description="mine")
    assert (own.description, own.human_input_mode, own.system_message) == ("mine", "ALWAYS", "")


def test_an_assistant_describes_itself_by_its_default_message_only() -> None:
    assistant = AssistantAgent("a", llm_config=False)
    assert assistant.description == AssistantAgent.DEFAULT_DESCRIPTION
    assert assistant.system_message == AssistantAgent.DEFAULT_SYSTEM_MESSAGE
    assert assistant.human_input_mode == "NEVER"
    assert AssistantAgent("a", "own", llm_config=False).description == "own"


def test_the_assistants_message_asks_for_blocks_that_the_user_proxy_runs() -> None:
    text = AssistantAgent.DEFAULT_SYSTEM_MESSAGE
    for part in ("```python", "```sh", "# filename: <filename>", "`print`", "TERMINATE"):
        assert part in text
    assert text.endswith('Reply "TERMINATE" in the end when everything is done.\n    ')


@pytest.mark.parametrize(
    ("name", "normal", "error"),
    [
        ("ok-1_", "ok-1_", None),
        ("a b.é", "a_b__", "Only letters, numbers, '_' and '-' are allowed."),
        ("ok\n", "ok_", "Only letters, numbers"),
        ("x" * 65, "x" * 64, "Name must be less than 64 characters."),
        ("", "", "Only letters, numbers"),
    ],
)
def test_names_for_models_are_checked_or_changed(name: str, normal: str, error: str | None) -> None:
    assert ConversableAgent._normalize_name(name) == normal
    if error is None:
        assert ConversableAgent._assert_valid_name(name) == name
    else:
        with pytest.raises(ValueError, match=error):
            ConversableAgent._assert_valid_name(name)


def test_no_part_of_an_agent_hides_a_method_of_another() -> None:
    owners: dict[str, list[type]] = {}
    parts = [part for part in ConversableAgent.__mro__[1:] if part not in (AgentState, object)]
    for part in parts:
        for name, value in vars(part).items():
            if inspect.isfunction(value) and not name.startswith("__"):
                owners.setdefault(name, []).append(part)
    clashes = {name: types for name, types in owners.items() if len(types) > 1}
    assert clashes == {}
