"""Tests: what a program has to do to pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

from .json_fields import as_object, check_keys, field_of

Comparison = Literal["exact", "lines", "tokens"]


@dataclass(frozen=True)
class Case:
    """One run of the program: what it reads from standard input, and what it has to print."""

    stdin: str = ""
    stdout: str = ""


@dataclass(frozen=True, kw_only=True)
class InputOutputTests:
    """The program passes if it prints in each case what the case expects.

    compare   "exact": the same characters. "lines": white space at the ends of lines and empty
              lines at the end do not count. "tokens": white space only separates words
    """

    cases: tuple[Case, ...]
    compare: Comparison = "lines"


@dataclass(frozen=True, kw_only=True)
class FunctionTests:
    """The program passes if `code` raises nothing: asserts that call its functions.

    entry_point   the function of the program that is called `candidate`, or an expression for it,
                  such as `Solution().solve`. If `code` defines `check`, as in HumanEval,
                  `check(candidate)` is called after it
    """

    code: str
    entry_point: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckerTests:
    """The program passes if `checker`, a Python program, accepts its output in each case.

    The checker reads one JSON object from standard input, with the keys "stdin", "expected" and
    "output". Exit code 0 means that the output is right.
    """

    checker: str
    cases: tuple[Case, ...]


Tests = InputOutputTests | FunctionTests | CheckerTests
_WHAT = "tests"


def tests_from_dict(value: object) -> Tests:
    """Return the tests that a JSON object describes: the keys say which kind. Raise `ValueError`.

    {"cases": [{"stdin": …, "stdout": …}], "compare": …}, {"code": …, "entry_point": …} or
    {"checker": …, "cases": […]}.
    """
    values = as_object(value, _WHAT)
    if "checker" in values:
        check_keys(values, ("checker", "cases"), _WHAT)
        return CheckerTests(
            checker=field_of(values, "checker", str, _WHAT, ""), cases=_cases(values)
        )
    if "code" in values:
        check_keys(values, ("code", "entry_point"), _WHAT)
        name = values.get("entry_point")
        return FunctionTests(
            code=field_of(values, "code", str, _WHAT, ""),
            entry_point=None if name is None else field_of(values, "entry_point", str, _WHAT, ""),
        )
    check_keys(values, ("cases", "compare"), _WHAT)
    compare = values.get("compare", "lines")
    if compare not in get_args(Comparison):
        known = ", ".join(get_args(Comparison))
        raise ValueError(f"tests: compare must be one of {known}, not {compare!r:.60}.")
    return InputOutputTests(cases=_cases(values), compare=compare)


def _cases(values: Mapping[str, Any]) -> tuple[Case, ...]:
    listed = cast("list[object]", field_of(values, "cases", list, _WHAT, []))
    if not listed:
        raise ValueError("tests: cases must have at least one case.")
    cases = list[Case]()
    for number, each in enumerate(listed):
        what = f"tests: case {number}"
        fields = as_object(each, what)
        check_keys(fields, ("stdin", "stdout"), what)
        cases.append(
            Case(
                field_of(fields, "stdin", str, what, ""), field_of(fields, "stdout", str, what, "")
            )
        )
    return tuple(cases)


def tests_to_dict(tests: Tests) -> Mapping[str, object]:
    """Return the JSON object that `tests_from_dict` reads."""
    return {name: value for name, value in asdict(tests).items() if value is not None}
