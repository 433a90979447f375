"""SessionSettings: the settings of live sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Self

from ..argument_checks import check_bool
from ..settings import ExecutorSettings


class InputPrompt(str):
    """The prompt of `input()`. `hidden` is True if the answer must not be shown (`getpass`).

    It can arrive before the reader of `execute_stream` has received what the block did before:
    `event_count` events, not counting `Started`.
    """

    hidden = False
    event_count = 0


InputCallback = Callable[[InputPrompt], str] | Callable[[InputPrompt], Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class SessionSettings(ExecutorSettings):
    """See `SessionExecutor`."""

    checkpoints: bool
    keep_processes: bool
    input_callback: InputCallback | None

    @classmethod
    def checked(
        cls, checkpoints: bool, keep_processes: bool, input_callback: InputCallback | None
    ) -> Self:
        """Return the settings. Raise `ValueError` if one is invalid."""
        return cls(
            checkpoints=check_bool("checkpoints", checkpoints),
            keep_processes=check_bool("keep_processes", keep_processes),
            input_callback=input_callback,
        )
