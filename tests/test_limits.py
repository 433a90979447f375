"""Limits: checked when made, and the same again after JSON."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellblock import Limits
from cellblock.limits import LOCAL_LIMITS, SANDBOX_LIMITS

NAMES = [field.name for field in dataclasses.fields(Limits)]
WHOLE = st.none() | st.integers(1, 2**40)
NUMBERS = st.none() | st.integers(1, 10**6) | st.floats(0.001, 10**6)


@given(
    st.fixed_dictionaries({name: NUMBERS if name.endswith("seconds") else WHOLE for name in NAMES})
)
def test_limits_are_the_same_after_json(values: dict[str, int | None]) -> None:
    limits = Limits(**values)
    assert Limits.from_dict(json.loads(json.dumps(limits.to_dict()))) == limits


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, True, "1", float("nan"), float("-inf")])
def test_what_is_no_number_above_zero_is_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"Limits.{name} must be"):
        Limits(**{name: value})


@pytest.mark.parametrize(
    "name", [name for name in NAMES if not name.endswith(("seconds", "processors"))]
)
def test_fractions_of_what_is_counted_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"Limits.{name} must be a whole number"):
        Limits(**{name: 1.5})  # pyright: ignore[reportArgumentType] - what callers without types write


def test_a_share_of_processors_that_the_kernel_cannot_count_is_refused() -> None:
    assert Limits(processors=0.01).processors == 0.01
    with pytest.raises(ValueError, match=r"Limits.processors must be at least 0\.01"):
        Limits(processors=0.005)


def test_unknown_limit_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Unknown limits: memory, time"):
        Limits.from_dict({"time": 1, "memory": 2})


def test_limits_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LOCAL_LIMITS.processes = 3  # pyright: ignore[reportAttributeAccessIssue] - that it is refused is the test


def test_without_a_sandbox_output_alone_is_bounded() -> None:
    assert [name for name, value in LOCAL_LIMITS.to_dict().items() if value is not None] == [
        "output_bytes"
    ]


def test_sandbox_bounds_all_but_time() -> None:
    unbounded = [name for name, value in SANDBOX_LIMITS.to_dict().items() if value is None]
    assert unbounded == ["cpu_seconds", "processors", "wall_seconds"]
