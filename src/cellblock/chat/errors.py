"""Errors of chats. The names are those of AutoGen 0.2."""

from __future__ import annotations

from ..errors import CellblockError


class AgentNameConflict(CellblockError, ValueError):
    """Several agents of a group chat have the same name."""

    def __init__(self, msg: str = "Found multiple agents with the same name.") -> None:
        super().__init__(msg)


class NoEligibleSpeaker(CellblockError, ValueError):
    """No agent may speak next. It ends a group chat early."""

    def __init__(self, message: str = "No eligible speakers.") -> None:
        super().__init__(message)


class SenderRequired(CellblockError, ValueError):
    """A message has no sender."""

    def __init__(self, message: str = "Sender is required but not provided.") -> None:
        super().__init__(message)


class InvalidCarryOverType(CellblockError, TypeError):
    """The carryover of a chat is neither text nor a list of texts."""

    def __init__(
        self,
        message: str = (
            "Carryover should be a string or a list of strings. "
            "Not adding carryover to the message."
        ),
    ) -> None:
        super().__init__(message)


class UndefinedNextAgent(CellblockError, ValueError):
    """The next agent of a group chat is none of its agents."""

    def __init__(
        self,
        message: str = "The provided agents list does not overlap with agents in the group.",
    ) -> None:
        super().__init__(message)
