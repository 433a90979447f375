"""Contain faults: an error while one request is handled ends only that request or session.

The event loop catches what a handler raises, and calls the `on_fault` of what the handler works
for. A fault for which nothing in particular can be blamed, such as a failed `epoll_wait`, is
ignored: what caused it is reported again.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

OnFault = Callable[[Exception], None]

_TRIES = 3


def run_contained(work: Callable[[], object], on_fault: OnFault) -> None:
    """Call `work`. If it raises, call `on_fault` with the error."""
    try:
        work()
    except Exception as error:
        report_fault(error, on_fault)


def report_fault(error: Exception, on_fault: OnFault) -> None:
    """Call `on_fault`, which may raise for the same reason as what it has to clean up."""
    for _ in range(_TRIES):
        try:
            on_fault(error)
        except Exception as another:
            error = another
        else:
            return


def describe(error: Exception) -> str:
    """Return what an error message says about `error`."""
    if isinstance(error, MemoryError):
        return "the runtime server has no memory left"
    if not isinstance(error, OSError) or error.errno is None:
        return f"{type(error).__name__}: {error}"
    if error.errno == errno.EMFILE:
        return DESCRIPTOR_LIMIT
    return f"the runtime server failed: {error}"


DESCRIPTOR_LIMIT = (
    "the runtime server has too many open files (RLIMIT_NOFILE): raise `ulimit -n`, or use fewer "
    "sessions"
)
