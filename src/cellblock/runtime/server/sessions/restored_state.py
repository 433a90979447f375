"""What was lost of a session's state since the last report of a block."""

from __future__ import annotations

from collections.abc import Iterable

_NOT_RESUMED = "The checkpoint did not answer or has ended. The session was restarted and is empty."
_PARTLY_RESUMED = "The session was restored without the variables that could not be loaded: "


class RestoredState:
    """Whether the state was kept, restored or is new, and how many blocks and what it lost."""

    def __init__(self) -> None:
        self.state, self.lost_blocks = "kept", 0
        self.lost_variables: list[str] = []  # that restores by values left out

    @property
    def was_lost(self) -> bool:
        """Whether the session had to be restored or started anew."""
        return self.state != "kept"

    def record_restore(self, lost_blocks: int) -> None:
        """Record that the session went back by `lost_blocks` blocks."""
        self.lost_blocks += lost_blocks
        if self.state == "kept":
            self.state = "restored"

    def take_error(self) -> str | None:
        """Return why a restore that was asked for is not complete, if so. Forget lost variables."""
        if self.was_lost:
            return _NOT_RESUMED
        lost, self.lost_variables = self.lost_variables, []
        return _PARTLY_RESUMED + ", ".join(lost) if lost else None

    def record_lost_variables(self, descriptions: Iterable[str]) -> None:
        """Record what a restore by values left out, if it is not recorded yet."""
        self.lost_variables = list(dict.fromkeys([*self.lost_variables, *descriptions]))

    def record_restart(self, lost_blocks: int, *, is_branch: bool) -> None:
        """Record that the session is empty again, or as it was when a branch began."""
        self.lost_blocks += lost_blocks
        self.lost_variables = []
        # An empty process is as good as restored if there was nothing to lose.
        self.state = "new" if self.lost_blocks and not is_branch else "restored"
