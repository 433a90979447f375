"""What was lost of a session's state since the last report of a block."""

from __future__ import annotations

from typing import Any

_NOT_RESUMED = "The checkpoint did not answer or has ended. The session was restarted and is empty."
_PARTLY_RESUMED = "The session was restored without the variables that could not be loaded: "


class RestoredState:
    """Whether the state was kept, restored or is new, and how many blocks and what it lost."""

    def __init__(self) -> None:
        self._state, self._lost_blocks = "kept", 0
        self.lost_variables: list[str] = []  # that restores by values left out

    @property
    def was_lost(self) -> bool:
        """Whether the session had to be restored or restarted."""
        return self._state != "kept"

    def record_restore(self, lost_blocks: int) -> None:
        """Record that the session went back by `lost_blocks` blocks."""
        self._lost_blocks += lost_blocks
        if self._state == "kept":
            self._state = "restored"

    def take_error(self) -> str | None:
        """Return why a restore that was asked for is not complete, if so. Forget lost variables."""
        if self.was_lost:
            return _NOT_RESUMED
        lost, self.lost_variables = self.lost_variables, []
        return _PARTLY_RESUMED + ", ".join(lost) if lost else None

    def record_lost_variables(self, descriptions: list[str]) -> None:
        """Record what a restore by values left out, if it is not recorded yet."""
        self.lost_variables = list(dict.fromkeys([*self.lost_variables, *descriptions]))

    def record_restart(self, lost_blocks: int, *, is_branch: bool) -> None:
        """Record that the session is empty again, or as it was when a branch began."""
        self._lost_blocks += lost_blocks
        self.lost_variables = []
        # An empty process is as good as restored if there was nothing to lose.
        self._state = "new" if self._lost_blocks and not is_branch else "restored"

    def fields(self) -> dict[str, Any]:
        """Return the fields of the report."""
        return {
            "session": self._state,
            "lost": self._lost_blocks,
            "lost_variables": self.lost_variables,
        }
