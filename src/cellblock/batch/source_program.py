"""SourceProgram: compile and run a program of any language that the sandbox has."""

from __future__ import annotations

from ..executors.command_line.program import ProgramRun
from ..executors.command_line.toolchains import TOOLCHAINS, Toolchain
from ..languages import find_language
from ..results import CodeResult
from .program_runs import InvalidProgram, ProgramRuns
from .programs import Program

# Names of `languages` whose toolchain has another one.
_NAMES = {"javascript": "nodejs"}
_SHELL = Toolchain("main.sh", "sh main.sh")


class SourceProgram:
    """The program of one verdict. It is written, and compiled, before its first run."""

    def __init__(self, runs: ProgramRuns, program: Program) -> None:
        self._runs, self._program = runs, program
        self._toolchain = find_toolchain(program.language)
        self._is_ready = False

    async def prepare(self) -> CodeResult | None:
        """Write and compile the program. Return the result of the compiler if that has failed.

        Raise `BackendError` if what the language needs is not installed.
        """
        toolchain, runs = self._toolchain, self._runs
        if toolchain.program != "python3":
            await runs.check_installed(toolchain.program)
        await runs.write(toolchain.file, self._program.code.encode(errors="replace"))
        if toolchain.compile:
            result = await runs.run(ProgramRun(argv=toolchain.compile.split()))
            return result if result.exit_code != 0 else None
        return None

    async def run(self, stdin: str) -> CodeResult:
        """Run the program. It reads `stdin`. Return what the compiler did if that has failed."""
        if not self._is_ready:
            if (failed := await self.prepare()) is not None:
                return failed
            self._is_ready = True
        return await self._runs.run(
            self._toolchain.run_program(None), stdin.encode(errors="replace")
        )


def find_toolchain(language: str) -> Toolchain:
    """Return how programs in `language` are run. Raise `InvalidProgram` if that is not known."""
    if toolchain := TOOLCHAINS.get(language):
        return toolchain
    found = find_language(language)
    name = language if found is None else _NAMES.get(found.name, found.name)
    if name == "sh":
        return _SHELL
    if name not in TOOLCHAINS:
        raise InvalidProgram(
            f"The language {language!r} is unknown. Use one of: {', '.join(TOOLCHAINS)}, sh."
        )
    return TOOLCHAINS[name]


def check_language(program: Program) -> None:
    """Raise `ValueError` if it is not known how to run the program: that is no fault of its own."""
    try:
        find_toolchain(program.language)
    except InvalidProgram as error:
        raise ValueError(f"The program {program.id!r:.60}: {error}") from error
