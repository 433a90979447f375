"""What a group chat manager sends on, stores, prints, and when it ends a group chat."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cellblock import sync
from cellblock.chat import (
    Agent,
    Cache,
    ConversableAgent,
    GroupChatManager,
    UserProxyAgent,
)
from tests.chat.group import manager_of, replay, said, speakers
from tests.chat.scripted import scripted

FENCE = "```"


def start(manager: GroupChatManager, message: Any = "go", **options: Any) -> Any:
    first: Any = manager.groupchat.agents[0]
    return first.initiate_chat(manager, message=message, **options)


def a_start(manager: GroupChatManager, message: Any = "go", **options: Any) -> Any:
    first: Any = manager.groupchat.agents[0]
    return asyncio.run(first.a_initiate_chat(manager, message=message, **options))


def failing(error: type[BaseException]) -> ConversableAgent:
    def fail(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, Any]:
        raise error("no reply")

    agent = scripted("b")
    agent.register_reply(Agent, fail)
    return agent


@pytest.mark.parametrize("begin", [start, a_start])
def test_the_admin_answers_when_ctrl_c_interrupts_an_agent(begin: Any) -> None:
    a, c = speakers("ac")
    manager = manager_of([a, failing(KeyboardInterrupt), c], max_round=3, admin_name="c")
    begin(manager)
    assert said(manager) == ["go", "c1", "a1"]


@pytest.mark.parametrize("begin", [start, a_start])
def test_ctrl_c_without_an_admin_and_errors_leave_the_transcript(begin: Any) -> None:
    a, c = speakers("ac")
    for error in (KeyboardInterrupt, RuntimeError):
        manager = manager_of([a, failing(error), c])
        with pytest.raises(error):
            begin(manager)
        assert said(manager) == ["go"]


def test_a_termination_test_that_raises_says_whose_it_is() -> None:
    def has_ended(message: dict[str, Any]) -> bool:
        return message["missing"]

    manager = manager_of(speakers(), {"is_termination_msg": has_ended})
    with pytest.raises(KeyError) as caught:
        start(manager)
    assert "is_termination_msg of agent 'chat_manager'" in "".join(caught.value.__notes__)
    assert said(manager) == ["go"]


def test_it_needs_a_sender_and_a_first_message() -> None:
    manager = manager_of(speakers())
    with pytest.raises(ValueError, match="'chat_manager' needs the sender"):
        manager.run_chat([{"content": "go", "role": "user"}], None, manager.groupchat)
    with pytest.raises(ValueError, match="'chat_manager' needs a first message"):
        manager.run_chat([], scripted("outside"), manager.groupchat)


def test_agents_use_the_cache_of_the_chat_and_then_their_own_again(tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
        seen.append(recipient.client_cache)
        raise RuntimeError("stop")

    a, b = scripted("a"), scripted("b")
    b.register_reply(Agent, look)
    own: Any = object()
    b.client_cache = own
    with Cache.disk(cache_path_root=str(tmp_path)) as cache:
        with pytest.raises(RuntimeError, match="stop"):
            start(manager_of([a, b]), cache=cache)
    assert seen == [cache]
    assert b.client_cache is own


def test_settings_can_be_changed_after_the_manager_was_made() -> None:
    manager = manager_of(speakers(), max_round=5)
    manager.groupchat.max_round = 2
    manager.groupchat.messages = []
    start(manager)
    assert said(manager) == ["go", "b1"]


@pytest.mark.parametrize("begin", [start, a_start])
def test_code_of_one_agent_runs_and_the_next_sees_its_output(begin: Any, tmp_path: Path) -> None:
    code = f"{FENCE}python\nprint(6 * 7)\n{FENCE}"
    with sync.SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        writer = ConversableAgent(
            "writer", llm_config=replay(code, "It is 42."), human_input_mode="NEVER"
        )
        runner = ConversableAgent(
            "runner", code_execution_config={"executor": executor}, human_input_mode="NEVER"
        )
        user = UserProxyAgent("user", code_execution_config=False, human_input_mode="NEVER")
        manager = manager_of([user, writer, runner], max_round=5)
        begin(manager, "What is 6 * 7?")
    assert said(manager)[1] == code
    assert said(manager)[2].startswith("exitcode: 0 (execution succeeded)\nCode output: ")
    assert "42" in said(manager)[2]
    assert said(manager)[4] == "It is 42."
