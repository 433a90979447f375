"""CommandLineExecutor: write each block to a file and run the file in a fresh process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
from abc import abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ...aio.background_loop import background_loop
from ...backends.base import Backend
from ...backends.connection import Connection
from ...backends.sandbox import WORK_DIR
from ...blocks import CodeBlock, CodeBlockLike, action_for_block
from ...cancellation import Token
from ...environments.virtualenv import environment_for, site_packages
from ...errors import ExecutorStopped, FunctionError
from ...events import Ended, Event, Output, Started
from ...functions.module import FUNCTION_PROMPT_TEMPLATE, Function, FunctionModule
from ...languages import LANGUAGES, Action, Language, check_policies, find_language
from ...limits import SANDBOX_LIMITS, Limits
from ...results import CodeResult, CommandLineCodeResult, ResultBuilder
from ...runtime.protocol import Frame
from ...source_text import as_utf_8, with_named_program
from ..argument_checks import (
    check_bool,
    check_folder,
    check_limits,
    check_strings,
    check_timeout,
    create_folder,
    shortest,
)
from ..base import CodeExecutor, RunBlock, validate_blocks
from ..frame_decoder import FrameDecoder
from ..run_options import RunOptions
from ..settings import ExecutorSettings
from ..workspace.temp_dir_removal import TempDirRemoval, remove_all_except
from ..workspace.workspace import OutsideWorkspace, Workspace
from .code_file import MAX_INLINE_CODE, CodeFile, events_of_saved_block, place_code_file
from .program import Program


@dataclass(frozen=True, kw_only=True)
class CommandLineSettings(ExecutorSettings):
    """See `CommandLineExecutor`. `functions` includes the name of their module."""

    timeout: float | None
    work_dir: Path | None
    functions: FunctionModule
    cleanup_temp_files: bool
    packages: tuple[str, ...]
    limits: Limits
    execution_policies: Mapping[str, Action]
    save_output: bool


class CommandLineExecutor(CodeExecutor):
    """Base class of the command-line executors. They share these parameters:

    timeout               seconds that one block may run, at least 1. `None` means no limit
    work_dir              the folder that blocks share, created if it is missing. `None` creates a
                          temporary folder, which `stop` removes
    functions             functions that blocks can import from the module `functions_module`
    cleanup_temp_files    remove the files of blocks that have no `# filename:` comment
    packages              requirements for the blocks' Python, installed once and cached. Their
                          commands come first in PATH
    limits                how much one block may use. A limit that is not named keeps its default
    execution_policies    maps a language to "execute", "save" or "ignore" to override the default.
                          A block with a `# filename:` comment is saved even if the default
                          ignores its language
    save_output           save the complete output of each block to a file `output_….txt` in the
                          work folder
    """

    SUPPORTED_LANGUAGES: ClassVar[list[str]] = [
        name
        for language in LANGUAGES
        if language.policy == "execute"
        for name in (language.name, *language.aliases)
    ]
    FUNCTION_PROMPT_TEMPLATE: ClassVar[str] = FUNCTION_PROMPT_TEMPLATE
    # True if the runtime server can write to the paths that `_path_in_backend` returns.
    _server_writes_files: ClassVar[bool] = True
    _default_limits: ClassVar[Limits] = SANDBOX_LIMITS
    # Three settings of an executor that is part of something larger, set before it is started:
    default_options = RunOptions()  # of runs that name none
    inner_work_dir = WORK_DIR  # where the sandbox or a container mounts the work folder
    loss_advice = "The next call starts a new server."  # after the loss of the server

    def __init__(
        self,
        timeout: float | None,
        work_dir: str | os.PathLike[str] | None,
        functions: Sequence[Function],
        functions_module: str,
        cleanup_temp_files: bool,
        *,
        packages: Sequence[str],
        limits: Limits,
        execution_policies: Mapping[str, Action] | None,
        save_output: bool,
    ) -> None:
        super().__init__()
        self._settings = CommandLineSettings(
            timeout=check_timeout(timeout),
            functions=FunctionModule(functions, functions_module),
            cleanup_temp_files=check_bool("cleanup_temp_files", cleanup_temp_files),
            packages=check_strings("packages", packages),
            limits=check_limits(limits, self._default_limits),
            execution_policies=check_policies(execution_policies or {}),
            save_output=check_bool("save_output", save_output),
            work_dir=check_folder("work_dir", work_dir),
        )
        if self._settings.work_dir is not None:
            create_folder("work_dir", self._settings.work_dir)

    def _init_state(self) -> None:
        super()._init_state()
        self._temp_dir_removal: TempDirRemoval | None = None
        self._temp_dir: Path | None = None
        self._workspace: Workspace | None = None
        self._connection: Connection | None = None
        # The runtime server deletes these too, but it may have been killed before that.
        self._paths_to_delete: list[str] = []

    # public properties, as in AutoGen

    @property
    def timeout(self) -> float | None:
        """Seconds that one block may run. None means no limit."""
        return self._settings.timeout

    def _repr_details(self) -> list[str]:
        work_dir = self._settings.work_dir or self._temp_dir
        place = "temporary work_dir" if work_dir is None else f"work_dir={str(work_dir)!r}"
        return [f"timeout={self.timeout}", place]

    @property
    def work_dir(self) -> Path:
        """The folder that the blocks share. Created if it is temporary and does not exist yet."""
        if self._settings.work_dir is not None:
            return self._settings.work_dir
        if self._temp_dir is None or not self._temp_dir.exists():
            self._temp_dir = Path(tempfile.mkdtemp(prefix="cellblock-work-"))
            self._temp_dir_removal = TempDirRemoval(self, self._temp_dir)
        return self._temp_dir

    @property
    def functions_module(self) -> str:
        """The name of the module that contains the functions."""
        return self._settings.functions.module_name

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions that blocks can import."""
        return self._settings.functions.functions

    @property
    def cleanup_temp_files(self) -> bool:
        """Whether the file of a block is removed when the block has ended."""
        return self._settings.cleanup_temp_files

    @property
    def limits(self) -> Limits:
        """How much one block may use."""
        return self._settings.limits

    def format_functions_for_prompt(self, prompt_template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
        """Describe the functions for a model.

        The template contains the placeholders `$module_name` and `$functions`.
        """
        return self._settings.functions.format_for_prompt(prompt_template)

    # implemented by subclasses

    @abstractmethod
    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
        """Return a backend whose Python can import from the folders in `packages`.

        The backend deletes the paths in `delete` when it closes. Append every path that is created
        here to `delete` immediately, so that it is also deleted if opening fails.
        """

    @abstractmethod
    def _command(self, language: Language, name: str) -> dict[str, Any]:
        """Return the part of a request that says how to run the file `name` in the work folder."""

    if TYPE_CHECKING:

        async def execute_code_blocks(
            self, code_blocks: Sequence[CodeBlockLike], cancellation_token: Token | None = None
        ) -> CommandLineCodeResult: ...

    async def _on_input(self, question: dict[str, Any]) -> str:
        """Return the answer to `input()` in a block. Implemented by sessions."""
        raise NotImplementedError

    # open and close

    async def _open(self) -> None:
        self._workspace = Workspace(
            self.work_dir, None if self._settings.work_dir is None else str(self._settings.work_dir)
        )
        required = (*self._settings.packages, *self._settings.functions.packages)
        packages: tuple[str, ...] = ()
        if required:
            packages = await self._install_packages(required)
        delete = self._temp_dirs_to_delete()
        self._paths_to_delete = delete
        try:
            backend = await self._make_backend(packages, delete)
            self._connection = await backend.open()
            self._connection.loss_advice = self.loss_advice
        except BaseException:
            remove_all_except(delete, [str(self._temp_dir)])
            raise
        try:
            if self._settings.functions.functions:
                await self._load_functions()
            await self._record_startup_files()
        except BaseException:
            await self._close(restarting=True)
            raise

    async def _record_startup_files(self) -> None:
        """Record the startup files in a work folder of the caller, if blocks may not change them.

        Opening can change their owner, which would look like a change by a block.
        """

    def _temp_dirs_to_delete(self) -> list[str]:
        """Return the temporary work folder, unless it belongs to a parent process."""
        removal = self._temp_dir_removal
        return [str(self._temp_dir)] if removal is not None and removal.is_own else []

    async def _remove_temp_dir(self) -> None:
        if self._temp_dir_removal is not None:
            await asyncio.to_thread(self._temp_dir_removal.remove)
        self._temp_dir_removal = self._temp_dir = None

    def _has_lost_server(self) -> bool:
        connection = self._connection
        return connection is not None and connection.has_lost_server() and not self._is_inherited()

    async def _install_packages(self, required: tuple[str, ...]) -> tuple[str, ...]:
        """Install the `required` packages and return the folders that contain them.

        Raise `PackageError`.
        """
        environment = await environment_for(required, python=self._python_path())
        return (str(site_packages(environment)),)

    def _python_path(self) -> str | None:
        """Return the path of the Python to install packages for. `None` means this Python."""
        return None

    async def _load_functions(self) -> None:
        """Write the functions module and run it once, so that its errors appear at the start."""
        assert self._workspace is not None
        name = f"{self._settings.functions.module_name}.py"
        await asyncio.to_thread(self._workspace.write, name, self._settings.functions.source)
        language = find_language("python")
        assert language is not None
        await self._run_function_loader(
            {
                **self._command(language, name),
                "wall_seconds": None if self.timeout is None else max(self.timeout, 60),
            }
        )

    async def _run_function_loader(self, request: dict[str, Any]) -> None:
        """Run the request that loads the functions. Raise `FunctionError` with its output."""
        text, exit_code = "", 0
        decoder = FrameDecoder(0, self.limits)
        async for frame in self._frames(request):
            for event in decoder.decode(frame):
                if isinstance(event, Output):
                    text += event.text
                elif isinstance(event, Ended):
                    exit_code = event.exit_code
        if exit_code != 0:
            raise FunctionError(f"Functions failed to load: {text}")

    async def _close(self, *, restarting: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            keep = [str(self._temp_dir)] if restarting and self._temp_dir is not None else []
            try:
                await connection.close(keep=keep)
            finally:
                await asyncio.to_thread(remove_all_except, self._paths_to_delete, keep)
        if not restarting:
            await self._remove_temp_dir()

    # blocks

    def _with_options(self, options: RunOptions) -> RunBlock:
        return lambda number, block, token: self._run(number, block, token, options)

    def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        return self._run(number, block, token, self.default_options)

    # Do not add a generator between here and the connection: each one slows down every event.
    async def _run(
        self, number: int, block: CodeBlock, token: Token | None, options: RunOptions
    ) -> AsyncGenerator[Event, None]:
        """Run one block as `_run_block` does, with `options`."""
        language = find_language(block.language)
        policies = self._settings.execution_policies
        action = action_for_block(block, language, policies) if language else "ignore"
        if language is None or action == "ignore":
            yield Started(number, block.language)
            yield _unknown_language(number, block) if language is None else Ended(number, 0, "ok")
            return
        assert self._workspace is not None
        workspace = self._workspace
        workspace.check_identity()
        try:
            server_writes = (
                self._server_writes_files
                and self._settings.cleanup_temp_files
                and action == "execute"
            )
            file = place_code_file(workspace, block, language, server_writes=server_writes)
        except OutsideWorkspace as error:
            yield Started(number, block.language)
            yield Ended(number, 1, "error", message=error.output)
            return
        code_file = workspace.absolute_path(file.name)
        yield Started(number, block.language, code_file)
        if action == "save":
            for event in events_of_saved_block(workspace, number, file):
                yield event
            return
        try:
            decoder = FrameDecoder(number, options.lowered(self.limits))
            program = with_named_program(language, block.code)
            frames = self._frames(self._request(program, file, options), token)
            try:
                async for frame in frames:
                    for event in decoder.decode(frame):
                        if isinstance(event, Ended):
                            since = file.written_at or decoder.written_at
                            for change in workspace.change_events(number, since, exclude=file.name):
                                yield change
                        yield event
            finally:
                await frames.aclose()
        finally:
            if not file.has_own_name:
                (
                    workspace.remove
                    if self._settings.cleanup_temp_files
                    else workspace.mark_finished
                )(file.name)

    def _request(self, language: Language, file: CodeFile, options: RunOptions) -> dict[str, Any]:
        request = {
            **options.process_fields(),
            **self._command(language, file.name),
            "wall_seconds": self._wall_seconds(options),
        }
        if file.written_at is None:
            request["write"] = self._path_in_backend(file.name), file.code
        if self._settings.save_output:
            request["save"] = self._path_in_backend(f"output_{secrets.token_hex(8)}.txt")
        return request

    def _path_in_backend(self, name: str) -> str:
        """Return the path of the file `name` in the work folder, as the backend sees it."""
        assert self._workspace is not None
        return self._workspace.absolute_path(name)

    def _frames(
        self, request: dict[str, Any], token: Token | None = None
    ) -> AsyncGenerator[Frame, None]:
        return self._require_connection().run(request, token, on_input=self._on_input)

    def _require_connection(self) -> Connection:
        """Return the connection. Raise `ExecutorStopped` if another thread has called `stop`."""
        if (connection := self._connection) is None:
            raise ExecutorStopped("The executor was stopped. Call start() to use it again.")
        return connection

    def _wall_seconds(self, options: RunOptions) -> float | None:
        return shortest(self.timeout, self.limits.wall_seconds, options.run_seconds)

    # programs

    async def _run_program(
        self, program: Program, token: Token | None, options: RunOptions
    ) -> CodeResult:
        builder, decoder = ResultBuilder(), FrameDecoder(0, options.lowered(self.limits))
        builder.add_event(Started(0, "python" if program.script else program.argv[0]))
        request: dict[str, object] = {
            **program.request(self.inner_work_dir),
            "written_bytes": options.written_bytes,
            "wall_seconds": self._wall_seconds(options),
        }
        if program.code_file is not None:
            name, code = program.code_file
            text = as_utf_8(code, Path(name).suffix[1:])
            if self._server_writes_files and len(text) <= MAX_INLINE_CODE:
                request["write"] = self._path_in_backend(name), text
            else:
                assert self._workspace is not None
                self._workspace.write(name, text)
        async with contextlib.aclosing(self._frames(request, token)) as frames:
            async for frame in frames:
                for event in decoder.decode(frame):
                    builder.add_event(event)
        return builder.result()

    # Runs with options, for what an executor is a part of.

    def run_blocks(
        self, blocks: Sequence[CodeBlockLike], token: Token | None, options: RunOptions
    ) -> Coroutine[Any, Any, CodeResult]:
        """Run blocks as `execute_code_blocks` does, with `options`."""
        events = self._events(validate_blocks(blocks), token, self._with_options(options))
        return background_loop().call(self._collect(events))

    def stream_blocks(
        self, blocks: Sequence[CodeBlockLike], token: Token | None, options: RunOptions
    ) -> AsyncGenerator[Event, None]:
        """Run blocks as `execute_stream` does, with `options`."""
        events = self._events(validate_blocks(blocks), token, self._with_options(options))
        return background_loop().stream(events)

    def run_program(
        self, program: Program, token: Token | None, options: RunOptions
    ) -> Coroutine[Any, Any, CodeResult]:
        """Run a program in the work folder of a full sandbox or of a container.

        Raises as `execute_code_blocks` does.
        """
        return background_loop().call(self._run_program(program, token, options))

    # the work folder from outside

    def writable_folders(self) -> list[Path]:
        """Return the folders on this machine that code can write to, from any thread."""
        return [] if self._workspace is None else [self._workspace.path]

    def ignore_upload(self, name: str) -> None:
        """Do not report a file that a client has written as a change by code."""
        if self._workspace is not None:
            self._workspace.ignore_upload(name)

    # settings

    def _all_settings(self) -> tuple[ExecutorSettings, ...]:
        return (self._settings,)

    def _copy_with_work_dir(self, work_dir: Path | None) -> Self:
        """Return an executor with the same settings but another work folder, not started."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self))  # also what the constructor of a subclass has set
        copy._settings = replace(self._settings, work_dir=work_dir)
        copy._init_state()
        return copy


def _unknown_language(number: int, block: CodeBlock) -> Ended:
    return Ended(number, 1, "error", message=f"unknown language {block.language}")
