"""What crosses between tests and program: every value comes back, and no bytes do any harm."""

from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from cellblock.batch.harness.errors import ErrorClasses, ProgramEndedIteration, encode_error
from cellblock.batch.harness.values import InvalidValue, decode, encode

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers().map(lambda number: number * 10**4400)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.characters(categories=["Cs"])
    | st.binary()
    | st.decimals(allow_nan=False)
    | st.fractions()
)
SCALAR = st.deferred(lambda: SCALARS)  # has a short text
HASHABLE = SCALAR | st.tuples(SCALAR, SCALAR) | st.frozensets(SCALAR, max_size=3)
VALUES = st.recursive(
    HASHABLE | st.sets(SCALAR, max_size=3) | st.binary().map(bytearray),
    lambda one: (
        st.lists(one, max_size=4) | st.tuples(one, one) | st.dictionaries(SCALAR, one, max_size=3)
    ),
    max_leaves=10,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(), one, max_size=2),
    max_leaves=10,
)
TAGS = st.sampled_from(
    "list tuple set frozenset deque range dict int complex bytes bytearray decimal fraction array "
    "objects object lent builtin".split()
)


def refuse(*value: object) -> Any:
    raise InvalidValue(str(value))


def cross(value: object) -> Any:
    return decode(json.loads(json.dumps(encode(value, refuse))), refuse)


@given(VALUES)
def test_values_come_back_as_they_were(value: Any) -> None:
    back = cross(value)
    assert back == value
    assert type(back) is type(value)


def test_numbers_that_are_equal_to_others_come_back_as_they_were() -> None:
    back = cross([math.nan, -0.0, Decimal("NaN"), Decimal("1.10"), Fraction(2, 4)])
    assert str(back) == "[nan, -0.0, Decimal('NaN'), Decimal('1.10'), Fraction(1, 2)]"


class Pair(NamedTuple):
    a: int
    b: list[int]


class EqualNumber(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class OtherNumber(float):
    def __float__(self) -> float:
        return 2.0


def test_subclasses_become_plain() -> None:
    for value, plain in (
        (OrderedDict[str, int](a=1), {"a": 1}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (Pair(1, [2]), (1, [2])),
        (EqualNumber(1), 1),
        (OtherNumber(1), 1.0),
    ):
        back = cross(value)
        assert (type(back), back) == (type(plain), plain)


@given(st.lists(TAGS | JSON).map(lambda parts: [*parts]) | st.tuples(TAGS, JSON).map(list))
def test_any_json_is_a_value_or_refused(value: object) -> None:
    try:
        decode(value, refuse)
    except InvalidValue:
        pass


def test_exceptions_come_back() -> None:
    for error in (
        KeyError("a", 1),
        ZeroDivisionError("no"),
        SystemExit(3),
        json.JSONDecodeError("a", "b", 0),
    ):
        back = ErrorClasses().decode_error(
            json.loads(json.dumps(encode_error(error, refuse))), refuse
        )
        assert (type(back), back.args) == (type(error), error.args)


def test_exceptions_that_end_iterations_are_replaced() -> None:
    class Ends(StopIteration):
        pass

    for error in (StopIteration(1), Ends(), GeneratorExit()):
        back = ErrorClasses().decode_error(encode_error(error, refuse), refuse)
        assert type(back) is ProgramEndedIteration


@given(JSON | st.tuples(st.lists(st.text() | JSON), st.text(), JSON).map(list))
def test_any_json_is_an_exception_or_refused(value: Any) -> None:
    try:
        assert isinstance(ErrorClasses().decode_error(value, refuse), BaseException)
    except InvalidValue:
        pass
