"""What scenarios share: how items are shown, and the abilities of scripted models."""

from __future__ import annotations

from typing import Any

MODEL_INFO = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "family": "unknown",
    "structured_output": True,
}


def shown(item: Any) -> Any:
    """Return what a person sees of an item. Pieces of live output depend on the time."""
    kind = type(item).__name__
    if kind in ("CodeOutputEvent", "TaskResult"):
        return None
    return [kind, item.source, getattr(item, "retry_attempt", None), item.to_text()]
