"""What asynchronous adapters are given: a sandbox, and its name."""

from __future__ import annotations

from ..box.base import Box
from ..box.sandbox import Sandbox
from ..errors import BackendError


def require_box(sandbox: object) -> Box:
    """Return `sandbox`. Raise `ValueError` if it is not one of cellblock."""
    if not isinstance(sandbox, Box):
        raise ValueError(
            f"sandbox must be one of cellblock, such as cellblock.Sandbox(), not {sandbox!r:.100}. "
            "Those of cellblock.sync cannot be used here."
        )
    return sandbox


def name_of(sandbox: Box) -> str:
    """Return what `attach_by_name` takes: the `ref` of a kept sandbox; otherwise its ID."""
    try:
        return sandbox.ref()
    except BackendError:
        return sandbox.id


async def attach_by_name(name: str) -> Box | None:
    """Return a sandbox that is kept, made by any process of this user. None: it is gone."""
    try:
        return await Sandbox.attach(name)
    except (BackendError, ValueError):
        return None
