"""Judge what a program prints: compare it, or give it to a checker."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from ..errors import WorkspaceError
from ..executors.frame_decoder import as_output
from ..results import CodeResult
from .harness_payload import CHECKER_START, CRASHED, checker_input
from .judgement import Judgement, describe_end, last_line
from .program_runs import ProgramRuns
from .programs import Program
from .source_program import SourceProgram
from .tests import Case, CheckerTests, Comparison, InputOutputTests
from .verdicts import CaseResult

_SIGNALS = 128  # added to the number of a signal that has ended a program
_SHOWN = 80  # characters of a line that differs


async def judge_cases(
    runs: ProgramRuns, program: Program, tests: InputOutputTests | CheckerTests
) -> Judgement:
    """Run the program once for each case, then compare all output or let the checker do it.

    A case that reaches a limit is the last one that is run: the others would cost as much.
    """
    source = SourceProgram(runs, program)
    if (failed := await source.prepare()) is not None:
        judgement = describe_end(failed, "error")
        return replace(judgement, message=f"The compiler: {judgement.message}")
    ended = list[Judgement]()
    results = list[CodeResult]()
    for case in tests.cases:
        try:
            results.append(await source.run(case.stdin))
        except WorkspaceError:
            if not results:
                raise
            ended.append(Judgement("error", "An earlier case has made the work folder unusable."))
            break
        ended.append(_describe_run(results[-1]))
        if ended[-1].outcome in ("timeout", "limit"):
            break
    # The checker comes last: so the program cannot find anything of it.
    cases = list[CaseResult]()
    for case, judgement, result in zip_longest(tests.cases[: len(ended)], ended, results):
        if judgement.outcome == "passed" and result is not None:
            judgement = await _judge_output(runs, tests, case, result.stdout)
        output = "" if result is None else result.stdout
        cases.append(
            CaseResult(outcome=judgement.outcome, output=output, message=judgement.message)
        )
    return _combine(cases, ended[-1])


def _describe_run(result: CodeResult) -> Judgement:
    judgement = describe_end(result, "error")
    if judgement.outcome == "passed" and result.truncated:
        message = "The program printed more than the limit of output."
        return replace(judgement, outcome="limit", limit="output_bytes", message=message)
    return judgement


def _combine(cases: list[CaseResult], last: Judgement) -> Judgement:
    """Return what the cases say together: the first that is not passed decides."""
    for number, case in enumerate(cases):
        if not case.passed:
            message = f"Case {number}: {case.message}"
            return replace(last, outcome=case.outcome, message=message, cases=tuple(cases))
    return replace(last, outcome="passed", message="", cases=tuple(cases))


async def _judge_output(
    runs: ProgramRuns, tests: InputOutputTests | CheckerTests, case: Case, output: str
) -> Judgement:
    if isinstance(tests, InputOutputTests):
        difference = find_difference(tests.compare, as_output(case.stdout), output)
        return Judgement("failed" if difference else "passed", difference)
    return await _check(runs, tests, case, output)


async def _check(runs: ProgramRuns, tests: CheckerTests, case: Case, output: str) -> Judgement:
    """Run the checker in a process of its own."""
    values = {"stdin": case.stdin, "expected": case.stdout, "output": output}
    data = checker_input(runs.distrusted, tests.checker, values)
    usage = runs.usage
    result = await runs.run_script(CHECKER_START, data, is_isolated=True)
    runs.usage = usage  # what the checker uses is not the program's
    if result.exit_code == 0:
        return Judgement("passed")
    last = last_line(result.output)
    if result.outcome == "error" and result.exit_code < _SIGNALS and result.exit_code != CRASHED:
        return Judgement("failed", last or "The checker refused the output.")
    return Judgement(
        "error", f"The checker itself failed: {last or f'Exit code {result.exit_code}'}"
    )


def find_difference(compare: Comparison, expected: str, output: str) -> str:
    """Return what differs first, in one line; "" if nothing does."""
    wanted, got = _units(compare, expected), _units(compare, output)
    if wanted == got:
        return ""
    name = "word" if compare == "tokens" else "line"
    for number, (right, wrong) in enumerate(zip_longest(wanted, got), 1):
        if right != wrong:
            return f"{name} {number} should be {_show(right)}, but is {_show(wrong)}"
    return ""


def _units(compare: Comparison, text: str) -> list[str]:
    match compare:
        case "exact":
            return text.split("\n")
        case "tokens":
            return text.split()
        case "lines":
            return [line.rstrip() for line in text.rstrip().split("\n")]


def _show(text: str | None) -> str:
    if text is None:
        return "missing"
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
