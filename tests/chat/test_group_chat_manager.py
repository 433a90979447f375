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
    GroupChat,
    GroupChatManager,
    UserProxyAgent,
)
from tests.chat.console import console
from tests.chat.group import manager_of, replay, said, speaker, speakers

FENCE = "```"


def test_every_agent_sees_every_message_and_knows_its_own() -> None:
    agents = speakers()
    manager = manager_of(agents, max_round=3)
    result = agents[0].initiate_chat(manager, message="go")
    assert result.chat_history == [
        {"content": "go", "role": "assistant", "name": "a"},
        {"content": "b1", "role": "user", "name": "b"},
        {"content": "c1", "role": "user", "name": "c"},
    ]
    assert result.summary == "c1"
    for agent in agents:
        history = agent.chat_messages[manager]
        own = [each["content"] for each in history if each["role"] == "assistant"]
        assert own == {"a": ["go"], "b": ["b1"], "c": ["c1"]}[agent.name]
        assert [each["name"] for each in history] == ["a", "b", "c"]
    assert manager.last_speaker is agents[2]
    assert manager.chat_messages_for_summary(agents[0]) is manager.groupchat.messages


def test_each_message_is_printed_once_and_the_next_speaker_is_named() -> None:
    agents = speakers()
    with console() as stream:
        start(manager_of(agents, max_round=2))
    line = "-" * 80
    assert stream.text == (
        f"a (to chat_manager):\n\ngo\n\n{line}\n\nNext speaker: b\n\nb (to chat_manager):\n\nb1\n"
        f"\n{line}\n"
    )
    with console() as stream:
        start(manager_of(speakers(), {"silent": True}), silent=True)
    assert stream.text == ""


def start(manager: GroupChatManager, message: Any = "go", **options: Any) -> Any:
    first: Any = manager.groupchat.agents[0]
    return first.initiate_chat(manager, message=message, **options)


def a_start(manager: GroupChatManager, message: Any = "go", **options: Any) -> Any:
    first: Any = manager.groupchat.agents[0]
    return asyncio.run(first.a_initiate_chat(manager, message=message, **options))


@pytest.mark.parametrize("begin", [start, a_start])
@pytest.mark.parametrize(
    ("last", "spoken"),
    [("TERMINATE", ["go", "b1", "TERMINATE"]), (None, ["go", "b1"]), ("", ["go", "b1", "", "a1"])],
)
def test_a_termination_message_and_a_missing_reply_end_the_chat(
    begin: Any, last: str | None, spoken: list[str]
) -> None:
    manager = manager_of([*speakers("ab"), speaker("c", last)], max_round=4)
    begin(manager)
    assert said(manager) == spoken


def test_a_new_chat_starts_empty_and_a_continued_one_does_not() -> None:
    manager = manager_of(speakers(), max_round=2)
    start(manager)
    start(manager, "more", clear_history=False)
    assert said(manager) == ["go", "b1", "more", "b2"]
    start(manager, "anew")
    assert said(manager) == ["anew", "b3"]
    manager.reset()
    assert said(manager) == []


def test_max_turns_counts_runs_of_the_group_chat() -> None:
    manager = manager_of(speakers(), max_round=3)
    start(manager, max_turns=2)
    assert said(manager) == ["go", "b1", "c1", "a1", "b2", "c2"]


def test_someone_from_outside_can_start_it() -> None:
    outside, manager = speaker("outside"), manager_of(speakers(), max_round=3)
    result = outside.initiate_chat(manager, message={"content": "go", "name": "alias"})
    assert [each["name"] for each in manager.groupchat.messages] == ["outside", "a", "b"]
    assert [each["content"] for each in result.chat_history or ()] == ["go"]


@pytest.mark.parametrize("begin", [start, a_start])
def test_introductions_come_first_and_count_as_no_message(begin: Any) -> None:
    agents = speakers(description="talks")
    manager = manager_of(agents, max_round=2, send_introductions=True)
    begin(manager)
    assert said(manager) == ["go", "b1"]
    first = agents[1].chat_messages[manager][0]
    assert first["name"] == "chat_manager"
    assert first["content"].endswith("In attendance are:\n\na: talks\nb: talks\nc: talks")


def failing(error: type[BaseException]) -> ConversableAgent:
    def fail(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, Any]:
        raise error("no reply")

    agent = speaker("b")
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


@pytest.mark.parametrize(("count", "number"), [(0, "0"), (1, "1")])
def test_a_group_chat_needs_two_agents(count: int, number: str) -> None:
    manager = manager_of(speakers()[:count])
    with pytest.raises(ValueError, match=f"underpopulated with {number} agents"):
        speaker("outside").initiate_chat(manager, message="go")


def test_a_manager_has_no_tools() -> None:
    config = {"config_list": [{"model": "m", "api_key": "k"}], "tools": [{"type": "function"}]}
    with pytest.raises(ValueError, match="not allowed to make function/tool calls"):
        GroupChatManager(GroupChat(speakers(), []), llm_config=config)


def test_an_asynchronous_reply_function_of_an_agent_needs_an_asynchronous_chat() -> None:
    async def reply(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
        return True, "of a coroutine"

    agents = speakers()
    agents[1].register_reply(Agent, reply)
    manager = manager_of(agents, max_round=2)
    with pytest.raises(RuntimeError, match=r"a_initiate_chat.*reply"):
        start(manager)
    a_start(manager)
    assert said(manager) == ["go", "of a coroutine"]


def test_it_needs_a_sender_and_a_first_message() -> None:
    manager = manager_of(speakers())
    with pytest.raises(ValueError, match="'chat_manager' needs the sender"):
        manager.run_chat([{"content": "go", "role": "user"}], None, manager.groupchat)
    with pytest.raises(ValueError, match="'chat_manager' needs a first message"):
        manager.run_chat([], speaker("outside"), manager.groupchat)


def test_agents_use_the_cache_of_the_chat_and_then_their_own_again(tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, str]:
        seen.append(recipient.client_cache)
        raise RuntimeError("stop")

    a, b = speaker("a"), speaker("b")
    b.register_reply(Agent, look)
    own: Any = object()
    b.client_cache = own
    with Cache.disk(cache_path_root=str(tmp_path)) as cache:
        with pytest.raises(RuntimeError, match="stop"):
            start(manager_of([a, b]), cache=cache)
    assert seen == [cache]
    assert b.client_cache is own


def test_another_agent_can_run_a_group_chat() -> None:
    agents = speakers()
    options: dict[str, Any] = {"speaker_selection_method": "round_robin", "max_round": 3}
    chat = GroupChat(agents, [], **options)
    deputy = speaker("deputy")
    deputy.register_reply(
        Agent, GroupChatManager.run_chat, config=chat, reset_config=GroupChat.reset
    )
    agents[0].initiate_chat(deputy, message="go")
    assert [each["content"] for each in chat.messages] == ["go", "b1", "c1"]
    deputy.reset()
    assert chat.messages == []


def test_settings_can_be_changed_after_the_manager_was_made() -> None:
    manager = manager_of(speakers(), max_round=5)
    manager.groupchat.max_round = 2
    manager.groupchat.messages = []
    start(manager)
    assert said(manager) == ["go", "b1"]


def last_word(sender: Any, recipient: GroupChatManager, summary_args: Any) -> str:
    return said(recipient)[-1]


def test_a_group_chat_in_a_nested_chat_ends_with_its_summary() -> None:
    inner = manager_of(speakers(), max_round=3)
    writer, leader = speaker("writer"), speaker("leader")
    chat = {"recipient": inner, "message": "Discuss.", "summary_method": last_word}
    writer.register_nested_chats([chat], trigger="outer")
    outer = manager_of([leader, writer], {"name": "outer"}, max_round=2)
    start(outer)
    assert said(inner) == ["Discuss.", "a1", "b1"]
    assert said(outer) == ["go", "b1"]


def test_a_manager_can_be_an_agent_of_another_group_chat() -> None:
    inner = manager_of(speakers(), max_round=2)
    outer = manager_of([speaker("leader"), inner], {"name": "outer"}, max_round=3)
    start(outer)
    assert said(inner) == ["go", "a1"]
    assert said(outer) == ["go"]
    assert inner.groupchat.messages[0]["name"] == "outer"


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
