"""Judgement: what the tests say about a program, before it becomes a verdict."""

from __future__ import annotations

from dataclasses import dataclass

from ..results import CodeResult
from .verdicts import CaseResult, Outcome

_SHOWN = 300  # characters of what a program has written to standard error


@dataclass(frozen=True)
class Judgement:
    """See `Verdict`. `cpu_seconds_of_tests` were not used by the program."""

    outcome: Outcome
    message: str = ""
    output: str = ""
    exit_code: int | None = None
    limit: str | None = None
    cases: tuple[CaseResult, ...] = ()
    cpu_seconds_of_tests: float = 0.0


def describe_end(result: CodeResult, failed: Outcome) -> Judgement:
    """Return what the end of a program means. Another exit code than 0 has the outcome `failed`.

    Output over its limit is no reason to fail here.
    """
    last = last_line(result.output)
    match result.outcome:
        case "ok":
            outcome, message = "passed", ""
        case "timeout":
            outcome, message = "timeout", last
        case "out_of_memory" | "killed" if result.limit:
            outcome, message = "limit", last
        case _:
            last = last_line(result.stderr)
            message = f"Exit code {result.exit_code}{': ' if last else ''}{last}"
            outcome = failed
    return Judgement(outcome, message, result.output, result.exit_code, result.limit)


def last_line(text: str) -> str:
    """Return the end of the last line that is not empty."""
    return text.rstrip().rpartition("\n")[2][-_SHOWN:]
