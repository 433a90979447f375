"""How many descriptors the server can still open. What does not fit is refused before it starts."""

from __future__ import annotations

import os

from ..linux.held_file import HeldFile, most_open

MOST_PER_REQUEST = 28  # also while it is carried out, without those of its mounts
MOST_PER_BRANCH = 14
_RESERVE = 24  # that are left for what runs already


def are_free(count: int) -> bool:
    """Return True if `count` descriptors are free, besides what the server needs meanwhile."""
    wanted = count + _RESERVE + most_open()
    if not _can_open(wanted):
        HeldFile.release_all()
        return _can_open(wanted)
    return True


def _can_open(count: int) -> bool:
    opened = list[int]()
    try:
        for _ in range(count):
            opened.append(os.dup(0))
    except OSError:
        return False
    else:
        return True
    finally:
        for descriptor in opened:
            os.close(descriptor)
