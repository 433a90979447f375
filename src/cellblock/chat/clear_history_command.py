"""The command `CLEAR HISTORY [agent] [number]` in a person's message to a group chat."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

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
