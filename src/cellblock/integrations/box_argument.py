"""What asynchronous adapters are given: a sandbox, and time limits."""

from __future__ import annotations

from ..box.arguments import Default
from ..box.base import Box


def require_box(sandbox: object) -> Box:
    """Return `sandbox`. Raise `ValueError` if it is not one of cellblock."""
    if not isinstance(sandbox, Box):
        raise ValueError(
            f"sandbox must be one of cellblock, such as cellblock.Sandbox(), not {sandbox!r:.100}. "
            "Those of cellblock.sync cannot be used here."
        )
    return sandbox


def limit_or_default(seconds: float | None) -> float | Default:
    """Return a time limit; for None, that of the sandbox."""
    return Default.TIMEOUT if seconds is None else seconds
