"""Judge the functions of a program: the harness runs the tests in a process of their own."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from typing import Any, cast, get_args

from ..languages import find_language
from ..results import CodeResult
from ..visible_text import visible
from .harness_payload import START, harness_input
from .judgement import Judgement, describe_end
from .program_runs import InvalidProgram, ProgramRuns, executor_cpu_seconds
from .programs import Program
from .tests import FunctionTests
from .verdicts import Outcome

_SIGPROF = 27  # ends the tests when they have used their own CPU time; see signal(7)
_OUTCOMES = get_args(Outcome)


async def judge_functions(runs: ProgramRuns, program: Program, tests: FunctionTests) -> Judgement:
    """Run the tests next to the program. See `harness.main` for what protects them."""
    language = find_language(program.language)
    if language is None or language.name != "python":
        raise InvalidProgram(f"Function tests need a program in Python, not {program.language!r}.")
    nonce, limit = secrets.token_hex(16), runs.limits.cpu_seconds
    data = harness_input(
        runs.distrusted,
        {"code": program.code, "stdin": program.stdin, "cpu_seconds": limit},
        {
            "nonce": nonce,
            "tests": tests.code,
            "entry_point": tests.entry_point,
            "cpu_seconds": limit,
        },
    )
    both = executor_cpu_seconds(runs.limits)
    result = await runs.run_script(START, data, cpu_seconds=both)
    return _judge(result, _read_verdict(result.stdout, nonce), limit)


def _judge(result: CodeResult, found: Judgement | None, limit: float | None) -> Judgement:
    ended = replace(describe_end(result, "error"), output=result.stderr)
    if found is None:
        return _without_verdict(result, ended, limit)
    found = replace(found, output=result.stderr, exit_code=result.exit_code)
    used = result.usage.cpu_seconds - found.cpu_seconds_of_tests
    if limit is not None and (used > limit or found.outcome == "timeout"):
        return _too_slow(found, limit)
    if ended.outcome in ("timeout", "limit") or (found.outcome, ended.outcome) == (
        "passed",
        "error",
    ):
        return ended
    return found


def _without_verdict(result: CodeResult, ended: Judgement, limit: float | None) -> Judgement:
    if limit is not None and ended.limit == "cpu_seconds":  # that of program and tests together
        return _too_slow(ended, limit)
    if ended.outcome in ("timeout", "limit"):
        return ended
    if limit is not None and result.exit_code == 128 + _SIGPROF:
        # Where both are busy, as when an iterator has no end, the program is at fault.
        if result.usage.cpu_seconds - limit > limit / 2:
            return _too_slow(ended, limit)
        message = f"The tests themselves used more than {limit} CPU seconds."
    else:
        end = ended.message or "Exit code 0"
        message = f"The process of the tests ended without a verdict: {end}"
    return replace(ended, outcome="error", message=message)


def _too_slow(judgement: Judgement, limit: float) -> Judgement:
    message = f"The program used more than {limit} CPU seconds."
    return replace(judgement, outcome="timeout", limit="cpu_seconds", message=message)


def _read_verdict(text: str, nonce: str) -> Judgement | None:
    """Return the verdict in the last line of `text`; None if it is none with this `nonce`."""
    try:
        values: Any = json.loads(text.rpartition("\n")[2])
    except (ValueError, RecursionError):
        return None
    match values:
        case {
            "nonce": str(found),
            "outcome": str(outcome),
            "message": str(message),
            "cpu_seconds": float(seconds),
        } if secrets.compare_digest(found, nonce) and outcome in _OUTCOMES:
            return Judgement(
                cast("Outcome", outcome), visible(message), cpu_seconds_of_tests=seconds
            )
        case _:
            return None
