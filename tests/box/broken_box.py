"""A box that breaks the contract, for a test of the suite for boxes."""

from __future__ import annotations

from typing import Any

from cellblock import CommandResult, Sandbox


class BrokenBox(Sandbox):
    """Reports success without running anything."""

    async def exec(self, *_: Any, **options: Any) -> CommandResult:
        """Do nothing."""
        return CommandResult(0, b"", b"")
