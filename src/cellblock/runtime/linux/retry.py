"""Repeat a system call that a process which serves many cannot do without."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_RETRIES, _DELAY = 100, 0.01  # seconds


def retry(call: Callable[[], _T]) -> _T:
    """Return what `call` returns. If the kernel lacks memory, for example, call it again.

    Raise `ConnectionError` immediately, and what `call` raises a second later.
    """
    for _ in range(_RETRIES):
        try:
            return call()
        except ConnectionError:
            raise
        except (OSError, MemoryError):
            time.sleep(_DELAY)
    return call()
