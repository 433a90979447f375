"""End threads that only help a library, so that the session can be copied.

A fork copies the calling thread only, and a lock that another thread holds stays locked in it. So
these threads end before the fork, by the event that their library offers for that. The library
starts a new one when it needs it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

# By module and class: the attribute with the `threading.Event` that ends such a thread.
_STOP_EVENTS = {
    ("tqdm._monitor", "TMonitor"): "was_killed",  # redraws bars; each new bar checks that one runs
}
_GRACE = 0.5  # seconds; the thread may be drawing, or wait for a lock
_POLL_INTERVAL = 0.0002


def end_helper_threads() -> None:
    """End the helper threads of known libraries. One that does not end in time is left running."""
    found = [(thread, name) for thread in threading.enumerate() if (name := _stop_event(thread))]
    for thread, name in found:
        getattr(thread, name).set()
    if found:
        join_threads([thread for thread, _ in found], time.monotonic() + _GRACE)


def is_helper(thread: object) -> bool:
    """Return True if `end_helper_threads` ends `thread`."""
    return bool(_stop_event(thread))


def join_threads(threads: Iterable[Any], deadline: float) -> None:
    """Wait until `deadline` for the end of `threads`, for Python and for the kernel."""
    for thread in threads:
        thread.join(max(0, deadline - time.monotonic()))
        # For the kernel, a thread ends a moment later than for Python.
        while os.path.exists(f"/proc/self/task/{thread.native_id}") and time.monotonic() < deadline:
            time.sleep(_POLL_INTERVAL)


def _stop_event(thread: object) -> str:
    for (module, name), event in _STOP_EVENTS.items():
        # The class itself, not its name: user code may name its own class alike.
        if type(thread) is getattr(sys.modules.get(module), name, None):
            return event
    return ""
