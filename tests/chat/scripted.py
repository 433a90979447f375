"""Agents that say what they are told to, without a model."""

from __future__ import annotations

from typing import Any

from cellblock.chat import Agent, ConversableAgent


def scripted(name: str, *replies: Any, **options: Any) -> ConversableAgent:
    """Return an agent that sends `replies`, then has no reply. An exception is raised instead."""
    settings: dict[str, Any] = {"human_input_mode": "NEVER", "llm_config": False, **options}
    agent = ConversableAgent(name, **settings)
    left = list(replies)

    def reply(recipient: Any, messages: Any, sender: Any, config: Any) -> tuple[bool, Any]:
        said = left.pop(0) if left else None
        if isinstance(said, BaseException):
            raise said
        return True, said

    agent.register_reply([Agent, None], reply, position=len(agent._reply_func_list))
    return agent


def contents(messages: Any) -> list[Any]:
    """Return what the messages say."""
    return [each["content"] for each in messages]
