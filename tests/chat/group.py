"""Agents for tests of group chats."""

from __future__ import annotations

from typing import Any

from cellblock.chat import GroupChat, GroupChatManager
from cellblock.models import ReplayChatCompletionClient
from tests.chat.scripted import scripted


def speakers(names: str = "abc", replies: int = 9, **options: Any) -> list[Any]:
    """Return an agent for each letter; agent `a` says a1, a2, …"""
    return [
        scripted(name, *(f"{name}{number}" for number in range(1, replies + 1)), **options)
        for name in names
    ]


def manager_of(
    agents: list[Any], manager: dict[str, Any] | None = None, **options: Any
) -> GroupChatManager:
    """Return the manager of a group chat by turn, with options of both."""
    settings: dict[str, Any] = {"speaker_selection_method": "round_robin", **options}
    manager = {"llm_config": False, **(manager or {})}
    return GroupChatManager(GroupChat(agents, [], **settings), **manager)


def replay(*answers: str) -> dict[str, Any]:
    """Return the `llm_config` of a model that says `answers`."""
    entry = {"model": "replay", "model_client": ReplayChatCompletionClient(answers)}
    return {"config_list": [entry]}


def client_of(llm_config: Any) -> ReplayChatCompletionClient:
    """Return the model in the `llm_config` of `replay`."""
    return llm_config["config_list"][0]["model_client"]


def said(manager: GroupChatManager) -> list[str]:
    """Return what was said in the group chat, without the names."""
    return [message["content"] for message in manager.groupchat.messages]
