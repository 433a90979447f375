"""Verdict: what became of one program."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, cast, get_args

from .json_fields import as_object, check_keys, field_of, parse_object

# passed: all tests, or exit code 0 without tests. failed: a test says no, or another exit code.
# error: the program raised an error in a test, or did not start. timeout: the CPU or the wall
# limit. limit: another limit, which `Verdict.limit` names. not_judged: our own failure.
Outcome = Literal["passed", "failed", "error", "timeout", "limit", "not_judged"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """What became of one case: `output` is what the program printed, `message` says what differs.

    The outcome is one of those of verdicts.
    """

    outcome: Outcome
    output: str = ""
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether the case is passed."""
        return self.outcome == "passed"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a program.

    id                  that of the program
    outcome             how it ended. The module says what each one means
    exit_code           that of its last run; None if it did not run
    output              what that run printed, up to the limit of output
    message             one line that says why it did not pass
    limit               the field of `Limits` that ended it; None if no limit did
    cases               one result for each case that ran
    cpu_seconds, wall_seconds, peak_memory_bytes   what all its runs used
    attempts            how often it was run: more than 1 after failures of our own
    digest              a hash of the program, its tests and its limits
    """

    id: str
    outcome: Outcome
    exit_code: int | None = None
    output: str = ""
    message: str = ""
    limit: str | None = None
    cases: tuple[CaseResult, ...] = ()
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory_bytes: int = 0
    attempts: int = 1
    digest: str = ""

    @property
    def passed(self) -> bool:
        """Whether the program passed."""
        return self.outcome == "passed"

    def to_json(self) -> str:
        """Return one line of JSON without its end."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Verdict:
        """Return the verdict that `to_json` returned as `line`. Raise `ValueError`."""
        values, what = dict(parse_object(line, "The line")), "The verdict"
        check_keys(values, [each.name for each in fields(cls)], what)
        for name in ("id", "outcome"):
            if not isinstance(values.get(name), str):
                raise ValueError(f'{what} needs "{name}", a string.')
        _check_outcome(values, what)
        listed = cast("list[object]", field_of(values, "cases", list, what, []))
        values["cases"] = tuple(map(_case_from_dict, listed))
        return cls(**values)


def _case_from_dict(value: object) -> CaseResult:
    values = as_object(value, "A case of the verdict")
    check_keys(values, [each.name for each in fields(CaseResult)], "A case of the verdict")
    _check_outcome(values, "A case of the verdict")
    return CaseResult(**values)


def _check_outcome(values: Any, what: str) -> None:
    if values.get("outcome") not in OUTCOMES:
        known = ", ".join(OUTCOMES)
        raise ValueError(f"{what}: outcome must be one of {known}.")
