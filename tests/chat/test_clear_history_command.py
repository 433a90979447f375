"""`CLEAR HISTORY` in a person's message to a group chat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cellblock.chat import UserProxyAgent
from cellblock.chat.groups.clear_history_command import (
    ClearHistoryCommand,
    has_clear_history_command,
    read_clear_history_command,
)
from tests.chat.console import console
from tests.chat.group import manager_of, said, speakers
from tests.chat.scripted import scripted

COMMANDS: list[tuple[str, str | None, int, str]] = [
    ("CLEAR HISTORY", None, 0, ""),
    ("please clear history now", None, 0, "please now"),
    ("CLEAR HISTORY bob and go", "bob", 0, "and go"),
    ("clear history bob. How are you?", "bob", 0, "How are you?"),
    ("CLEAR HISTORY 2 go", None, 2, "go"),
    ("CLEAR HISTORY bob 2, go", "bob", 2, "go"),
    ("CLEAR HISTORY 2 bob", "bob", 2, ""),
    ("CLEAR HISTORY, bob, alice", "bob", 0, "alice"),
    ("CLEAR HISTORY Bob", None, 0, "Bob"),
    ("CLEAR HISTORY -1", None, 0, "-1"),
    ("CLEAR\nHISTORY bob", "bob", 0, ""),
]


def test_the_command_is_read() -> None:
    faults: list[tuple[str, ClearHistoryCommand]] = []
    for text, agent, keep, rest in COMMANDS:
        found = read_clear_history_command(text, ["alice", "bob"])
        if found != ClearHistoryCommand(agent, keep, rest) or not has_clear_history_command(text):
            faults.append((text, found))
    assert faults == []


@pytest.mark.parametrize("content", ["CLEARHISTORY", "clear the history", "", None, [], 5])
def test_other_content_has_no_command(content: Any) -> None:
    assert not has_clear_history_command(content)


def obey(answer: str, *, asynchronous: bool = False, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return what stays of a group chat, and with each agent, when a person answers so."""
    human = UserProxyAgent("human", code_execution_config=False)
    agents: list[Any] = [*speakers("ab"), human]
    settings: dict[str, Any] = {"enable_clear_history": True, "max_round": 4, **options}
    manager = manager_of(agents, **settings)
    with console(answer) as stream:
        if asynchronous:
            asyncio.run(agents[0].a_initiate_chat(manager, message="go"))
        else:
            agents[0].initiate_chat(manager, message="go")
    histories = {
        agent.name: [each["content"] for each in agent.chat_messages[manager]] for agent in agents
    }
    return stream.text, {"group": said(manager), **histories}


@pytest.mark.parametrize("asynchronous", [False, True])
def test_it_clears_the_history_of_all(asynchronous: bool) -> None:
    printed, left = obey("CLEAR HISTORY go on", asynchronous=asynchronous)
    assert "Clearing history for all agents.\n" in printed
    assert left == dict.fromkeys(("group", "a", "b", "human"), ["go on", "a1"])


def test_it_clears_the_history_of_one() -> None:
    printed, left = obey("CLEAR HISTORY b go on")
    assert "Clearing history for b.\n" in printed
    assert left["b"] == ["go on", "a1"]
    assert left["group"] == left["a"] == ["go", "b1", "go on", "a1"]


@pytest.mark.parametrize(("keep", "left"), [(1, ["b1"]), (2, ["go", "b1"]), (9, ["go", "b1"])])
def test_it_keeps_the_last_messages(keep: int, left: list[str]) -> None:
    printed, messages = obey(f"CLEAR HISTORY {keep} go on")
    assert f"Clearing history for all agents except last {keep} messages.\n" in printed
    assert messages["group"] == messages["b"] == [*left, "go on", "a1"]


def test_it_is_plain_text_unless_it_is_enabled() -> None:
    _, left = obey("CLEAR HISTORY", enable_clear_history=False)
    assert left["group"] == ["go", "b1", "CLEAR HISTORY", "a1"]


def test_a_model_cannot_clear_the_history() -> None:
    agents = [*speakers("a"), scripted("b", "CLEAR HISTORY")]
    manager = manager_of(agents, max_round=3, enable_clear_history=True)
    first: Any = agents[0]
    first.initiate_chat(manager, message="go")
    assert said(manager) == ["go", "CLEAR HISTORY", "a1"]


def test_a_call_stays_with_the_answer_that_interrupts_it() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "double", "arguments": "{}"}}
    caller = scripted("caller", {"content": None, "tool_calls": [call]})
    human = UserProxyAgent("human", code_execution_config=False)
    agents: list[Any] = [*speakers("a"), caller, human]
    manager = manager_of(agents, max_round=3, enable_clear_history=True, func_call_filter=False)
    with console("CLEAR HISTORY"):
        agents[0].initiate_chat(manager, message="go")
    called, answer = human.chat_messages[manager]
    assert called["tool_calls"] == [call]
    assert answer["tool_responses"][0]["content"] == "USER INTERRUPTED"


def test_a_result_that_is_kept_keeps_its_call() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "double", "arguments": "{}"}}
    caller = scripted("caller", {"content": None, "tool_calls": [call]})
    helper = scripted("helper", function_map={"double": lambda: 2})
    human = UserProxyAgent("human", code_execution_config=False)
    agents = [*speakers("a"), caller, helper, human]
    manager = manager_of(agents, max_round=4, enable_clear_history=True)
    with console("CLEAR HISTORY 1"):
        agents[0].initiate_chat(manager, message="go")
    for messages in (manager.groupchat.messages, agents[0].chat_messages[manager]):
        assert [bool(each.get("tool_calls")) for each in messages] == [True, False, False]
