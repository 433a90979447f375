"""The list of checks, which fills when the modules in `checks` are imported."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from .target import ConformanceTarget

Check = Callable[[ConformanceTarget], Awaitable[None]]
CHECKS: dict[str, Check] = {}
# For checks of one mode only: True if they need a live interpreter, False if fresh processes.
_IS_LIVE: dict[str, bool] = {}


def check(function: Check) -> Check:
    """Add `function` to the list under its name."""
    CHECKS[getattr(function, "__name__", repr(function))] = function
    return function


def check_fresh(function: Check) -> Check:
    """Add `function` for executors whose blocks are fresh processes."""
    _IS_LIVE[getattr(function, "__name__", repr(function))] = False
    return check(function)


def check_live(function: Check) -> Check:
    """Add `function` for executors whose blocks share one live interpreter."""
    _IS_LIVE[getattr(function, "__name__", repr(function))] = True
    return check(function)


def checks_for(target: ConformanceTarget) -> dict[str, Check]:
    """Return the checks that apply to `target`, by name."""
    is_live = target.is_live
    return {
        name: function
        for name, function in CHECKS.items()
        if _IS_LIVE.get(name, is_live) == is_live
    }
