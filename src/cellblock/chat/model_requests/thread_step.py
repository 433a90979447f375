"""A synchronous function as a step that does not block an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..steps import Step


def in_thread(function: Callable[..., Any]) -> Step:
    """Return the call of `function`; in an asynchronous chat a thread makes it."""

    async def call(*arguments: Any, **options: Any) -> Any:
        return await asyncio.to_thread(function, *arguments, **options)

    return Step(function, call)
