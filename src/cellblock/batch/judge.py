"""Judge one program in an executor."""

from __future__ import annotations

from ..events import Usage
from ..executors.base import CodeExecutor
from ..executors.command_line.base import CommandLineExecutor
from ..executors.workspace.workspace import OutsideWorkspace
from ..overrides import is_overridden
from .cases import judge_cases
from .function_run import judge_functions
from .judgement import Judgement, describe_end
from .program_runs import InvalidProgram, ProgramRuns
from .programs import JudgeLimits, Program
from .source_program import SourceProgram
from .tests import CheckerTests, FunctionTests, InputOutputTests
from .verdicts import Verdict


async def judge(executor: CodeExecutor, program: Program, limits: JudgeLimits) -> Verdict:
    """Run `program` with its tests in `executor`, and return the verdict.

    `executor` is a command-line executor that runs nothing else meanwhile, and in whose folders
    earlier programs have left nothing. Its limit of memory holds, and of CPU time if it is lower
    than what `executor_cpu_seconds` returns.

    Raise `ValueError` for another executor, and the errors of executors if the program could not
    be run. Neither is something that the program did.
    """
    if not isinstance(executor, CommandLineExecutor):
        raise ValueError(
            f"{executor!r} cannot judge programs, because each one needs a fresh process. "
            "Use a command-line executor, such as SandboxCommandLineCodeExecutor."
        )
    if is_overridden(executor, "execute_code_blocks"):
        raise ValueError(
            f"{executor!r} cannot judge programs: its own execute_code_blocks would not be called."
        )
    return await judge_runs(ProgramRuns(executor, limits), program)


async def judge_runs(runs: ProgramRuns, program: Program) -> Verdict:
    """Run `program` with its tests by `runs`, and return the verdict. Raise as `judge` does."""
    try:
        await runs.prepare(program.files)
        judgement = await _judge(runs, program)
    except (InvalidProgram, OutsideWorkspace) as error:
        judgement = Judgement("error", str(error))
    return _verdict(program, judgement, runs.usage)


def _verdict(program: Program, judgement: Judgement, usage: Usage) -> Verdict:
    return Verdict(
        id=program.id,
        outcome=judgement.outcome,
        exit_code=judgement.exit_code,
        output=judgement.output,
        message=judgement.message,
        limit=judgement.limit,
        cases=judgement.cases,
        cpu_seconds=max(0.0, usage.cpu_seconds - judgement.cpu_seconds_of_tests),
        wall_seconds=usage.wall_seconds,
        peak_memory_bytes=usage.peak_memory_bytes,
    )


async def _judge(runs: ProgramRuns, program: Program) -> Judgement:
    match program.tests:
        case None:
            result = await SourceProgram(runs, program).run(program.stdin)
            return describe_end(result, "failed")
        case FunctionTests() as tests:
            return await judge_functions(runs, program, tests)
        case InputOutputTests() | CheckerTests() as tests:
            return await judge_cases(runs, program, tests)
