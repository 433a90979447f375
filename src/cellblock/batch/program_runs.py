"""ProgramRuns: the runs of one program and of its checker, and what they used together."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

from ..cancellation import CancellationToken
from ..errors import BackendError, ExecutorStopped
from ..events import Usage
from ..executors.command_line.base import CommandLineExecutor
from ..executors.command_line.program import ProgramRun
from ..executors.places.host import HostPlace
from ..executors.places.sandbox import SandboxPlace
from ..executors.run_options import RunOptions
from ..executors.workspace.workspace import OutsideWorkspace, Workspace
from ..limits import KIB, MIB
from ..results import CodeResult
from .programs import JudgeLimits

_SMALL_BYTES = 64 * KIB  # written without a thread
# A program that prints so many times the output to keep is ended: printing costs little CPU time.
_PRINTED_SHARE = 16
_MIN_SECONDS = 0.001  # of a run for which no time is left
_installed = WeakKeyDictionary[CommandLineExecutor, set[str]]()


def executor_cpu_seconds(limits: JudgeLimits) -> float | None:
    """Return how much CPU time a run may use together with the tests next to the program.

    The tests may use as much as the program. A second more, because limits of single processes are
    whole seconds.
    """
    return None if limits.cpu_seconds is None else 2 * limits.cpu_seconds + 1


async def _any_room() -> None:
    """Return the limit of written bytes where only that of the executor holds."""


class NotInstalled(BackendError):
    """What a language needs is not installed where programs run."""


class InvalidProgram(Exception):
    """The program cannot be run as it is described. Its verdict says why."""


class ProgramRuns:
    """Runs programs in the work folder of `executor`, each as a fresh process with `limits`.

    seconds   for which all runs together may take; None: any time
    room      returns how many bytes the next run may write, if that is lower than the executor's
              limit
    token     ends the run that is active, and the next ones raise `ExecutorStopped`
    on_run    is called at the end of each run, of the program or not, with its CPU seconds

    `usage` is that of the program.
    """

    def __init__(
        self,
        executor: CommandLineExecutor,
        limits: JudgeLimits,
        *,
        seconds: float | None = None,
        room: Callable[[], Awaitable[int | None]] = _any_room,
        token: CancellationToken | None = None,
        on_run: Callable[[float], object] = lambda _: None,
    ) -> None:
        self._executor, self.limits, self._room = executor, limits, room
        self._token, self._on_run = token, on_run
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self.usage = Usage()

    async def prepare(self, files: Mapping[str, str]) -> None:
        """Start the executor and write `files`. Raise `InvalidProgram` for a name outside."""
        if self._executor.must_start():
            await self._executor.start()
        for name, text in files.items():
            try:
                await self.write(self._workspace.resolve(name), text.encode(errors="replace"))
            except OutsideWorkspace as error:
                raise InvalidProgram(f"The file {name!r}: {error.output}.") from error

    @property
    def distrusted(self) -> list[str] | None:
        """The folders from which tests import nothing; None means all that they can write to.

        The program may have put modules there. Without a full sandbox or a container, the rights
        to a folder do not tell whether it can.
        """
        place = self._executor.place
        if isinstance(place, HostPlace) or (
            isinstance(place, SandboxPlace) and place.sandbox.isolation != "full"
        ):
            return [str(folder) for folder in place.writable_folders()]
        return None

    @property
    def _workspace(self) -> Workspace:
        return self._executor.place.workspace

    async def write(self, name: str, data: bytes) -> None:
        """Write a file of the work folder. Raise `WorkspaceError`."""
        self._workspace.check_identity()
        if len(data) > _SMALL_BYTES:
            await asyncio.to_thread(self._workspace.write_bytes, name, data)
        else:
            self._workspace.write_bytes(name, data)

    async def check_installed(self, name: str) -> None:
        """Raise `BackendError` if the program `name` is not installed in the sandbox."""
        known = _installed.setdefault(self._executor, set())
        if name not in known:
            check = ProgramRun(argv=["sh", "-c", f"command -v {name}"])
            if (await self._run(check, RunOptions())).exit_code != 0:
                raise NotInstalled(f"{name} is not installed where programs run. Install it there.")
            known.add(name)

    async def run(
        self, program: ProgramRun, stdin: bytes = b"", *, cpu_seconds: float | None = None
    ) -> CodeResult:
        """Run `program`, which reads `stdin`, and return its result.

        `cpu_seconds` replaces the limit. Raises as `CodeExecutor.execute_code_blocks` does.
        """
        limits, file = self.limits, ""
        if stdin:  # under a new name: an earlier run may have made a folder with the old one
            file = f".stdin-{os.urandom(8).hex()}"
            await self.write(file, stdin)
        options = RunOptions(
            run_seconds=self._wall_seconds(),
            replaces_timeout=True,
            written_bytes=await self._room(),
            cpu_seconds=limits.cpu_seconds if cpu_seconds is None else cpu_seconds,
        )
        kept = limits.output_bytes
        most = None if kept is None else max(_PRINTED_SHARE * kept, MIB)
        program = replace(program, stdin=file, output_bytes=kept, most_output=most)
        try:
            result = await self._run(program, options)
        finally:
            if file:
                self._workspace.remove(file)
            if program.code_file is not None:
                self._workspace.remove(program.code_file[0])
        self.usage += result.usage
        return result

    async def _run(self, program: ProgramRun, options: RunOptions) -> CodeResult:
        result = await self._executor.run_program(program, self._token, options)
        self._on_run(result.usage.cpu_seconds)
        if self._token is not None and self._token.is_cancelled():
            raise ExecutorStopped("The program was cancelled.")
        return result

    def _wall_seconds(self) -> float | None:
        if self._deadline is None:
            return self.limits.wall_seconds
        left = max(_MIN_SECONDS, self._deadline - time.monotonic())
        return left if self.limits.wall_seconds is None else min(left, self.limits.wall_seconds)

    async def run_script(
        self,
        code: str,
        stdin: bytes,
        *,
        cpu_seconds: float | None = None,
        is_isolated: bool = False,
    ) -> CodeResult:
        """Run a Python program of our own. Raises as `run` does.

        `is_isolated`: its interpreter starts without what a program can have left for it, such as
        files in its virtual environment.
        """
        name = self._workspace.temporary_name("py")
        program = ProgramRun(script=name, code_file=(name, code), is_isolated=is_isolated)
        return await self.run(program, stdin, cpu_seconds=cpu_seconds)
