"""Limits are validated on creation and survive a round trip through JSON."""

import dataclasses
import json
import pickle

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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, True, "1", float("nan"), float("-inf")])
def test_values_other_than_positive_numbers_are_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"Limits.{name} must be"):
        Limits(**{name: value})


@pytest.mark.parametrize(
    "name", [name for name in NAMES if not name.endswith(("seconds", "processors"))]
)
def test_fractional_counts_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"Limits.{name} must be a whole number"):
        Limits(**{name: 1.5})  # pyright: ignore[reportArgumentType] - untyped callers


def test_too_small_number_of_processors_is_refused() -> None:
    assert Limits(processors=0.01).processors == 0.01
    with pytest.raises(ValueError, match=r"Limits.processors must be at least 0\.01"):
        Limits(processors=0.005)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"memory_bytes": 1 << 20},
            r"Limits.memory_bytes must be at least 8388608 \(8 MiB\), which Python needs to start, "
            "not 1048576.",
        ),
        ({"processes": 1}, r"Limits.processes must be at least 2, because .* not 1\."),
    ],
)
def test_limits_too_small_for_a_block_are_refused(values: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Limits(**values)


def test_limits_that_are_not_named_are_no_part_of_the_saved_values() -> None:
    limits = Limits(processes=None, open_files=9)
    assert limits.to_dict() == {"processes": None, "open_files": 9}
    assert limits != Limits(open_files=9)
    assert repr(limits) == "Limits(processes=None, open_files=9)"
    assert pickle.loads(pickle.dumps(limits)) == limits


def test_unknown_limit_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Unknown limits: memory, time"):
        Limits.from_dict({"time": 1, "memory": 2})


def test_limits_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LOCAL_LIMITS.processes = 3  # pyright: ignore[reportAttributeAccessIssue] - tested


def test_local_limits_bound_only_the_output() -> None:
    assert [name for name, value in LOCAL_LIMITS.to_dict().items() if value is not None] == [
        "output_bytes"
    ]


def test_sandbox_limits_bound_everything_but_time_and_processors() -> None:
    unbounded = [name for name, value in SANDBOX_LIMITS.to_dict().items() if value is None]
    assert unbounded == ["cpu_seconds", "processors", "wall_seconds"]
