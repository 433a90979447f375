"""Limits are validated on creation and survive a round trip through JSON."""

import dataclasses
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import Limits
from cellblock.limits import LOCAL_LIMITS, SANDBOX_LIMITS

NAMES = [field.name for field in dataclasses.fields(Limits)]
WHOLE = st.none() | st.integers(2**23, 2**40)
NUMBERS = st.none() | st.integers(1, 10**6) | st.floats(0.001, 10**6)


@given(
    st.fixed_dictionaries({name: NUMBERS if name.endswith("seconds") else WHOLE for name in NAMES})
)
def test_limits_survive_a_round_trip_through_json(values: dict[str, int | None]) -> None:
    limits = Limits(**values)
    assert Limits.from_dict(json.loads(json.dumps(limits.to_dict()))) == limits


def test_values_that_are_no_limits_are_refused() -> None:
    memory = "must be at least 8388608 (8 MiB), which Python needs to start, not 1048576."
    cases: list[tuple[str, object, str]] = [
        ("processors", 0.005, "must be at least 0.01"),
        ("memory_bytes", 1 << 20, memory),
        ("processes", 1, "must be at least 2, because"),
    ]
    for name in NAMES:
        wrong = (0, -1, True, "1", float("nan"), float("-inf"))
        cases += [(name, value, "must be") for value in wrong]
        if not name.endswith(("seconds", "processors")):
            cases.append((name, 1.5, "must be a whole number"))
    faults = [
        (name, value)
        for name, value, message in cases
        if f"Limits.{name} {message}" not in refusal(name, value)
    ]
    assert faults == []
    assert Limits(processors=0.01).processors == 0.01


def refusal(name: str, value: Any) -> str:
    """Return the error for a value of a limit, or no text if there is none."""
    try:
        Limits(**{name: value})
    except ValueError as error:
        return str(error)
    return ""


def test_limits_that_are_not_named_are_no_part_of_the_saved_values() -> None:
    limits = Limits(processes=None, open_files=9)
    assert limits.to_dict() == {"processes": None, "open_files": 9}
    assert limits != Limits(open_files=9)
    assert repr(limits) == "Limits(processes=None, open_files=9)"
    assert pickle.loads(pickle.dumps(limits)) == limits


def test_unknown_limits_and_changes_are_refused() -> None:
    with pytest.raises(ValueError, match="Unknown limits: memory, time"):
        Limits.from_dict({"time": 1, "memory": 2})
    with pytest.raises(dataclasses.FrozenInstanceError):
        LOCAL_LIMITS.processes = 3  # pyright: ignore[reportAttributeAccessIssue] - tested


def test_local_limits_bound_the_output_and_sandbox_limits_all_but_time_and_processors() -> None:
    local, sandbox = LOCAL_LIMITS.to_dict(), SANDBOX_LIMITS.to_dict()
    bounded = [name for name, value in local.items() if value is not None]
    unbounded = [name for name, value in sandbox.items() if value is None]
    assert bounded == ["output_bytes"]
    assert unbounded == ["cpu_seconds", "processors", "wall_seconds"]


def test_files_in_memory_may_hold_half_of_the_memory() -> None:
    assert SANDBOX_LIMITS.memory_file_bytes == SANDBOX_LIMITS.tmp_bytes == 1 << 30
    small = Limits(memory_bytes=64 << 20).with_defaults(SANDBOX_LIMITS)
    assert (small.memory_file_bytes, small.memory_files) == (32 << 20, 8192)
    less = Limits(memory_bytes=64 << 20, tmp_bytes=1 << 20).with_defaults(SANDBOX_LIMITS)
    assert less.memory_file_bytes == 1 << 20
    assert Limits.unlimited().memory_file_bytes is None
