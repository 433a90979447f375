"""The command `CLEAR HISTORY [agent] [number]` in a person's message to a group chat."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from ..agent import ChatMessage
from ..io import IOStream
from ..replies.message_store import preserved_count

if TYPE_CHECKING:
    from .group_chat import GroupChat

logger = logging.getLogger(__name__)

_PUNCTUATION = ".,;:!?"


@dataclass(frozen=True)
class ClearHistoryCommand:
    """What a person wants to have cleared.

    `agent` is None for all agents, `keep` how many of the last messages stay, and `rest` the
    message without the command.
    """

    agent: str | None
    keep: int
    rest: str


def has_clear_history_command(content: object) -> bool:
    """Return True if the text of a message has the command."""
    return isinstance(content, str) and _start(content.split()) is not None


def read_clear_history_command(text: str, agent_names: Collection[str]) -> ClearHistoryCommand:
    """Return the command in `text`. The name and the number may have either order."""
    words = text.split()
    start = _start(words) or 0
    end = start + 2
    agent: str | None = None
    keep: int | None = None
    while end < len(words):
        word = words[end].rstrip(_PUNCTUATION)
        if agent is None and word in agent_names:
            agent = word
        elif keep is None and word.isdecimal():
            keep = int(word)
        else:
            break
        end += 1
    return ClearHistoryCommand(agent, keep or 0, " ".join([*words[:start], *words[end:]]))


def _start(words: list[str]) -> int | None:
    for index, (first, second) in enumerate(pairwise(words)):
        if first.upper() == "CLEAR" and second.upper().rstrip(_PUNCTUATION) == "HISTORY":
            return index
    return None


def clear_agents_history(reply: ChatMessage, groupchat: GroupChat) -> str:
    """Obey the command in `reply`; see `GroupChatManager.clear_agents_history`."""
    command = read_clear_history_command(reply["content"], groupchat.agent_names)
    keep = command.keep
    if reply.get("tool_responses") and not keep:
        keep = 1
        logger.warning(
            "The last tool call message will be saved to prevent errors caused by tool response "
            "without tool call."
        )
    kept = f" except last {keep} messages" if keep else ""
    IOStream.get_default().print(f"Clearing history for {command.agent or 'all agents'}{kept}.")
    for agent in groupchat.conversable_agents():
        if command.agent in (None, agent.name):
            agent.clear_history(nr_messages_to_preserve=keep or None)
    if command.agent is None:
        messages = groupchat.messages
        del messages[: len(messages) - preserved_count(messages, keep)]
    return command.rest
