"""The agents and messages of a group chat."""

from __future__ import annotations

import logging
from dataclasses import fields

import pytest

from cellblock.chat import GroupChat
from tests.chat.group import manager_of, speakers
from tests.chat.scripted import scripted


def test_the_parameters_and_defaults_are_autogens() -> None:
    names = [each.name for each in fields(GroupChat) if each.init]
    assert names == [
        "agents", "messages", "max_round", "admin_name", "func_call_filter",
        "speaker_selection_method", "max_retries_for_selecting_speaker", "allow_repeat_speaker",
        "allowed_or_disallowed_speaker_transitions", "speaker_transitions_type",
        "enable_clear_history", "send_introductions", "select_speaker_message_template",
        "select_speaker_prompt_template", "select_speaker_auto_multiple_template",
        "select_speaker_auto_none_template", "select_speaker_transform_messages",
        "select_speaker_auto_verbose", "select_speaker_auto_model_client_cls",
        "select_speaker_auto_llm_config", "role_for_select_speaker_messages",
    ]  # fmt: skip
    chat = GroupChat(agents=speakers(), messages=[])
    assert (chat.max_round, chat.admin_name, chat.func_call_filter) == (10, "Admin", True)
    assert (chat.speaker_selection_method, chat.allow_repeat_speaker) == ("auto", True)


def test_an_empty_prompt_is_none() -> None:
    for prompt in ("", None):
        chat = GroupChat(agents=speakers(), messages=[], select_speaker_prompt_template=prompt)
        assert chat.select_speaker_prompt_template is None
        assert chat.select_speaker_prompt() is None


def test_messages_get_the_name_of_the_speaker_and_text_as_content() -> None:
    a = scripted("a")
    chat = GroupChat([a], [])
    chat.append({"content": "x", "role": "user", "name": "other"}, a)
    chat.append({"content": None, "role": "function", "name": "double"}, a)
    chat.append({"content": [{"type": "text", "text": "y"}], "role": "assistant"}, a)
    assert chat.messages == [
        {"content": "x", "role": "user", "name": "a"},
        {"content": "", "role": "function", "name": "double"},
        {"content": "y", "role": "assistant", "name": "a"},
    ]
    chat.reset()
    assert chat.messages == []


def test_group_chats_that_contain_each_other_are_searched_once() -> None:
    inner = manager_of([scripted("a")], {"name": "inner"})
    outer = manager_of([inner, scripted("b")], {"name": "outer"})
    inner.groupchat.agents.append(outer)
    assert [each.name for each in outer.groupchat.nested_agents()] == ["inner", "b", "a", "outer"]


def test_an_agent_without_a_description_is_worth_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chat = GroupChat([scripted("a", description=""), scripted("b", description="says b")], [])
    with caplog.at_level(logging.WARNING):
        text = chat.introductions_msg()
    assert text.endswith("In attendance are:\n\na:\nb: says b")
    assert "The agent 'a' has an empty description" in caplog.text
