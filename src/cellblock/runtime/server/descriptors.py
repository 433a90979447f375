"""How many descriptors the server can still open. What does not fit is refused before it starts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..linux.held_file import most_open

# What each needs at most, also while it starts.
SESSION, TENANT = 12, 28
_COSTS = {"open": SESSION, "fork": 20, "checkpoint": 4, "program": 12}
_RESERVE = 24  # that are left for what runs already


def cost_of(request: dict[str, Any]) -> int:
    """Return how many descriptors a request of a session needs that stay open."""
    cost = _COSTS.get(request["op"], 0)
    return cost + len(request.get("mounts", ())) if cost else 0


def have_room(count: int, release: Callable[[], object]) -> bool:
    """Return True if `count` descriptors are free, beside the reserve.

    If they are not, `release` is called, which closes what is only open to be faster.
    """
    wanted = count + _RESERVE + most_open()
    if _are_free(wanted):
        return True
    release()
    return _are_free(wanted)


def _are_free(count: int) -> bool:
    taken = list[int]()
    try:
        for _ in range(count):
            taken.append(os.dup(0))
    except OSError:
        return False
    else:
        return True
    finally:
        for descriptor in taken:
            os.close(descriptor)
