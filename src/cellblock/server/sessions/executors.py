"""The executors of the server: sessions and programs that see their work folder as /mnt/data."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ...aio.background_loop import background_loop
from ...backends.base import Backend
from ...backends.shared_server import SharedSandboxBackend
from ...cancellation import Token
from ...environments.virtualenv import context_of
from ...errors import WorkspaceError
from ...events import Started
from ...executors.argument_checks import shortest
from ...executors.command_line.base import MAX_INLINE_CODE, CommandLineExecutor
from ...executors.command_line.docker import DockerCommandLineCodeExecutor
from ...executors.command_line.sandbox import SandboxCommandLineCodeExecutor
from ...executors.displays import DisplayFiles
from ...executors.frame_decoder import FrameDecoder
from ...executors.session.checkpointing import CheckpointableSession
from ...executors.session.docker import DockerSessionCodeExecutor
from ...executors.session.sandbox import SandboxSessionCodeExecutor
from ...executors.workspace.workspace import Workspace
from ...limits import MIB, Limits
from ...results import CodeResult, ResultBuilder
from ...runtime.linux.safe_folder import empty_folder
from ...runtime.protocol import Frame
from ...source_text import as_utf_8
from ..settings import ServedSettings

DATA_DIR = "/mnt/data"
_NO_TERMINAL_INPUT = "EOF when reading a line"  # Python's words
_LITTLE = 16  # files and MiB that are removed without a thread


class _NoDisplayFiles(DisplayFiles):
    """Save nothing: clients receive displays in the result."""

    def save(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program in the work folder. Names of files are relative to it.

    argv            its arguments, unless it is a `script` in Python
    code_file       the name and the text of a file to write before. No file has this name
    stdin           the name of the file of its standard input, which it does not see; "": none
    output_bytes    how many bytes of output to keep, instead of the limit `output_bytes`
    address_space   how many bytes it may map; a script: besides what Python has mapped
    """

    argv: Sequence[str] = ()
    script: str = ""
    code_file: tuple[str, str] | None = None
    stdin: str = ""
    output_bytes: int | None = None
    address_space: int | None = None

    def request(self) -> dict[str, object]:
        """Return the request to run it."""
        return {
            "script": f"{DATA_DIR}/{self.script}" if self.script else None,
            "argv": list(self.argv),
            "stdin": f"{DATA_DIR}/{self.stdin}" if self.stdin else None,
            "output_bytes": self.output_bytes,
            "address_space": self.address_space,
            "shows_value": False,
        }


class ServedExecutor(CommandLineExecutor):
    """An executor that can set limits for each run."""

    # Whether the fresh process of a Python block prints the value of its last line.
    _shows_value: ClassVar[bool] = False

    def _init_state(self) -> None:
        super()._init_state()
        self._run_seconds: float | None = None
        self._written_bytes: int | None = None
        self._terminal_mode: str | None = None

    @contextlib.contextmanager
    def lower_limits(
        self,
        run_seconds: float | None = None,
        written_bytes: int | None = None,
        terminal_mode: str | None = None,
    ) -> Generator[None]:
        """Lower the limits of the one run, checkpoint or fork that happens in the context.

        With `terminal_mode`, its output is that of IPython in a terminal.
        """
        self._run_seconds, self._written_bytes = run_seconds, written_bytes
        self._terminal_mode = terminal_mode
        try:
            yield
        finally:
            self._run_seconds = self._written_bytes = self._terminal_mode = None

    def folders(self) -> list[Path]:
        """Return the folders on this machine that code can write to.

        Safe to call in any thread.
        """
        return [] if self._workspace is None else [self._workspace.path]

    def must_start(self) -> bool:
        """Return True if it is not started, or has lost its server."""
        return self._must_start()

    async def run_program(self, program: Program, token: Token | None = None) -> CodeResult:
        """Run a program in its folder. Raises as `execute_code_blocks` does."""
        return await background_loop().call(self._run_program(program, token))

    async def _run_program(self, program: Program, token: Token | None) -> CodeResult:
        builder, decoder = ResultBuilder(), FrameDecoder(0, self._block_limits())
        builder.add_event(Started(0, "python" if program.script else program.argv[0]))
        request = {**program.request(), "wall_seconds": self._wall_seconds()}
        if program.code_file is not None:
            name, code = program.code_file
            request |= self._request_code_file(name, as_utf_8(code, Path(name).suffix[1:]))
        async with contextlib.aclosing(self._frames(request, token)) as frames:
            async for frame in frames:
                for event in decoder.decode(frame):
                    builder.add_event(event)
        return builder.result()

    def _request_code_file(self, name: str, code: str) -> dict[str, object]:
        """Write a new file, or return the part of a request that lets the server write it."""
        if self._server_writes_files and len(code) <= MAX_INLINE_CODE:
            return {"write": (self._path_in_backend(name), code)}
        assert self._workspace is not None
        self._workspace.write(name, code)
        return {}

    def ignore_upload(self, name: str) -> None:
        """Do not report a file that a client has written as a change by code."""
        if self._workspace is not None:
            self._workspace.ignore_upload(name)

    def _wall_seconds(self) -> float | None:
        return shortest(super()._wall_seconds(), self._run_seconds)

    def _block_limits(self) -> Limits:
        if self._written_bytes is None:
            return self._settings.limits
        allowed = self.limits.written_bytes
        lower = self._written_bytes if allowed is None else min(self._written_bytes, allowed)
        return replace(self.limits, written_bytes=lower)

    def _frames(
        self, request: dict[str, Any], token: Token | None = None
    ) -> AsyncGenerator[Frame, None]:
        own: dict[str, Any] = {"written_bytes": self._written_bytes}
        if self._terminal_mode is not None:
            own |= {"terminal": self._terminal_mode, "no_input": _NO_TERMINAL_INPUT}
        return super()._frames({"shows_value": self._shows_value, **request, **own}, token)


class ServedSession(ServedExecutor, CheckpointableSession):  # pyright: ignore[reportIncompatibleMethodOverride] - the class of results
    """A live session, whose displays are not saved."""

    _no_input: ClassVar[str] = (
        "input() is not available here. Put the values into the code or a file."
    )

    def folders(self) -> list[Path]:
        """See `ServedExecutor`."""
        return [*super().folders(), *(each.snapshot.path for each in self.checkpoints)]

    def _display_files(self) -> DisplayFiles:
        return _NoDisplayFiles(Path())


class ServedSandboxSession(ServedSession, SandboxSessionCodeExecutor):  # pyright: ignore[reportIncompatibleMethodOverride] - the class of results
    """A session in the sandbox."""

    def folders(self) -> list[Path]:
        """See `ServedExecutor`. The scratch folder has the home, packages and checkpoints."""
        return [*super().folders(), *(() if self._scratch is None else (self._scratch,))]


class ServedDockerSession(ServedSession, DockerSessionCodeExecutor):  # pyright: ignore[reportIncompatibleMethodOverride] - the class of results
    """A session in a container, whose work folder must be a volume at /mnt/data too.

    It cannot be forked: in the same container, /mnt/data of the copy would be the original's.
    """

    _first_folder = DATA_DIR

    def _fork_obstacle(self) -> str:
        return "--executor docker"


class ServedSandboxProgram(ServedExecutor, SandboxCommandLineCodeExecutor):
    """Runs blocks and programs as fresh processes, without traces of earlier ones after `reset`.

    Those with the same `group` and settings share a runtime server. `idle_since` is for its user.
    """

    _shows_value = True

    def __init__(self, settings: ServedSettings, group: str) -> None:
        super().__init__(
            settings.run_seconds,
            virtual_env_context=None if settings.env is None else context_of(settings.env),
            packages=settings.packages,
            limits=settings.limits,
            policy=settings.policy,
            preload=settings.preload,
        )
        self._inner_work_dir, self._sharing_group = DATA_DIR, group
        self._scratch: Path | None = None
        self._pristine: list[object] = []
        self.idle_since = 0.0

    @property
    def group(self) -> str:
        """The group that this was made with."""
        return self._sharing_group

    def folders(self) -> list[Path]:
        """See `ServedExecutor`. The scratch folder has the home and packages."""
        return [*super().folders(), *(() if self._scratch is None else (self._scratch,))]

    async def reset(self) -> bool:
        """Remove all that code has left. Return False if that is impossible, so `stop` it.

        Call it when no code runs.
        """
        if self._must_start():
            return False
        if _costs_little(self._emptied_folders()):
            return self._reset()
        return await asyncio.to_thread(self._reset)

    def _reset(self) -> bool:
        if not all(map(empty_folder, self._emptied_folders())):
            return False
        try:
            self._workspace = Workspace(self.work_dir)
            states = itertools.zip_longest(self._states(), self._pristine)
            return all(now == before for now, before in states)
        except (OSError, WorkspaceError):  # too many open files, for example
            return False

    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
        backend = await super()._make_backend(packages, delete)
        assert isinstance(backend, SharedSandboxBackend)
        self._scratch = Path(backend.scratch)
        return backend

    async def _open(self) -> None:
        await super()._open()
        self._pristine = [*self._states()]

    def _emptied_folders(self) -> tuple[str, str]:
        return str(self.work_dir), f"{self._scratch}/home"

    def _states(self) -> Iterator[object]:
        """Yield what `_reset` does not undo: changes of the environment, and of the folders."""
        for folder in self._emptied_folders():
            yield os.stat(folder).st_mode, os.listxattr(folder)
        yield from _states(f"{self._scratch}/env")


def _costs_little(folders: Sequence[str]) -> bool:
    """Return True if removing the contents of the folders takes less time than using a thread."""
    pending, cost = [*folders], 0
    with contextlib.suppress(OSError):  # code can take away permissions
        while pending and cost < _LITTLE:
            with os.scandir(pending.pop()) as entries:
                for entry in itertools.islice(entries, _LITTLE):
                    cost += 1 + entry.stat(follow_symlinks=False).st_size // MIB
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        return cost < _LITTLE
    return False


def _states(folder: str) -> Iterator[object]:
    """Yield the states of a folder and everything below it. Code cannot set the change times."""
    status = os.lstat(folder)
    yield folder, status.st_ino, status.st_mode, status.st_ctime_ns
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _states(entry.path)
            else:
                status = entry.stat(follow_symlinks=False)
                yield entry.path, status.st_ino, status.st_mode, status.st_ctime_ns


class ServedDockerProgram(ServedExecutor, DockerCommandLineCodeExecutor):
    """Runs blocks and programs as fresh processes in a container.

    Its work folder must be a volume at /mnt/data too.
    """

    _shows_value = True

    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
        await super()._make_backend(packages, delete)
        assert self._backend is not None
        self._backend = replace(self._backend, cwd=DATA_DIR)
        return self._backend

    def _path_in_backend(self, name: str) -> str:
        return f"{DATA_DIR}/{name}"
