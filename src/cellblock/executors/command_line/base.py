"""The command-line executors: each block becomes a file, and a fresh process runs it."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from ...backends.base import Connection, Place
from ...blocks import CodeBlock, action_on, file_name, silence_pip
from ...cancellation import Token
from ...environments.virtualenv import environment_for, site_packages
from ...errors import BackendLost, FunctionError
from ...events import Ended, Event, FileCreated, Output, Started
from ...functions.module import FUNCTION_PROMPT_TEMPLATE, Function, FunctionModule
from ...languages import LANGUAGES, Action, Language, check_policies, find_language
from ...limits import Limits
from ...runtime.linux.rmtree import remove_tree
from ...runtime.protocol import Frame
from ..base import CodeExecutor
from ..frame_decoder import Frames
from ..workspace.workspace import OutsideWorkspace, Workspace

_log = logging.getLogger(__name__)
_CALLERS = 2  # threads at most that run blocks of one executor by themselves; with more, one loop for all costs less
_LARGE = 1 << 16  # characters of code that are handed over in a file at once


class _CodeFile(NamedTuple):
    """The file of a block: whether its name is the block's own wish, and when it was written; `None`: it has yet to be."""

    name: str
    is_named: bool
    since: int | None
    code: str = ""  # what is to be written


class CommandLineExecutor(CodeExecutor):
    """What the command-line executors share. The parameters of all of them:

    timeout               seconds that one block may run; at least 1
    work_dir              the folder that blocks share, made when missing; `None`: a temporary one, removed by `stop`
    functions             functions that blocks can import from the module `functions_module`
    cleanup_temp_files    remove the files of blocks that have no `# filename:` of their own
    packages              requirements for the blocks' Python, installed once and cached; their commands come first in PATH
    limits                how much one block may use
    execution_policies    language to "execute", "save" or "ignore", where that is to differ from the table's; what the table
                          ignores is saved where the block has a `# filename:`
    save_output           keep the whole output of each block in a file `output_….txt` in the work folder
    """

    SUPPORTED_LANGUAGES: ClassVar[list[str]] = [
        name
        for language in LANGUAGES
        if language.policy == "execute"
        for name in (language.name, *language.aliases)
    ]
    FUNCTION_PROMPT_TEMPLATE: ClassVar[str] = FUNCTION_PROMPT_TEMPLATE
    _server_writes: ClassVar[bool] = True  # whether the server sees the work folder as it is here

    def __init__(
        self,
        timeout: float,
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
        if isinstance(timeout, bool) or not timeout >= 1:
            raise ValueError("Timeout must be greater than or equal to 1.")
        self._timeout = timeout
        self._module = FunctionModule(functions, functions_module)
        self._cleanup_temp_files = truth("cleanup_temp_files", cleanup_temp_files)
        self._packages = texts("packages", packages)
        self._limits = limits
        self._execution_policies: dict[str, Action] = dict(execution_policies or {})
        check_policies(self._execution_policies)
        self._save_output = truth("save_output", save_output)
        self._given_work_dir = None if work_dir is None else Path(work_dir)
        self._remove_temporary: weakref.finalize[[str], Any] | None = None
        self._temporary: Path | None = None
        if self._given_work_dir is not None:
            self._given_work_dir.mkdir(parents=True, exist_ok=True)
        self._workspace: Workspace | None = None
        self._connection: Connection | None = None
        # Answers what a block asks for, where it may ask.
        self._on_input: Callable[[dict[str, Any]], Coroutine[Any, Any, str]] | None = None
        self._made: list[str] = []  # what the cell server removes, unless it was killed

    # what AutoGen's users know

    @property
    def timeout(self) -> float:
        """Seconds that one block may run."""
        return self._timeout

    @property
    def work_dir(self) -> Path:
        """The folder that the blocks share."""
        if self._given_work_dir is not None:
            return self._given_work_dir
        if self._temporary is None or not self._temporary.exists():
            self._temporary = Path(tempfile.mkdtemp(prefix="cellblock-work-"))
            self._remove_temporary = weakref.finalize(self, remove_tree, str(self._temporary))
        return self._temporary

    @property
    def functions_module(self) -> str:
        """The name of the module that holds the functions."""
        return self._module.module_name

    @property
    def functions(self) -> tuple[Function, ...]:
        """The functions that blocks can import."""
        return self._module.functions

    @property
    def cleanup_temp_files(self) -> bool:
        """Whether the files of blocks are removed when these are over."""
        return self._cleanup_temp_files

    @property
    def limits(self) -> Limits:
        """How much one block may use."""
        return self._limits

    def format_functions_for_prompt(self, prompt_template: str = FUNCTION_PROMPT_TEMPLATE) -> str:
        """Describe the functions for a model; the template has `$module_name` and `$functions`."""
        return self._module.format_for_prompt(prompt_template)

    # what the kinds of executors fill in

    @abstractmethod
    async def _make_place(self, packages: tuple[str, ...], delete: list[str]) -> Place:
        """Give the place, with folders of `packages` importable; it removes the paths in `delete` when it ends.

        Whatever is made for it goes into `delete` at once, so that it is removed as well when something fails.
        """

    @abstractmethod
    def _command(self, language: Language, name: str) -> dict[str, Any]:
        """Give the part of a request that says how to run the file `name` of the work folder."""

    # the template

    async def _open(self) -> None:
        self._workspace = Workspace(
            self.work_dir, None if self._given_work_dir is None else str(self._given_work_dir)
        )
        required = (*self._packages, *self._module.packages)
        packages: tuple[str, ...] = ()
        if required:
            packages = await self._install(required)
        delete = [str(self._temporary)] if self._temporary is not None else []
        self._made = delete
        try:
            place = await self._make_place(packages, delete)
            self._connection = await place.open()
        except BaseException:
            _remove_all(delete, [str(self._temporary)])
            raise
        try:
            if self._module.functions:
                await self._load_functions()
        except BaseException:
            await self._close(restarting=True)
            raise

    async def _install(self, required: tuple[str, ...]) -> tuple[str, ...]:
        """Give folders in which the blocks' Python finds what is `required`. Raises `PackageError`."""
        environment = await environment_for(required, python=self._python())
        return (str(site_packages(environment)),)

    def _python(self) -> str | None:
        """The Python for which packages are installed; `None` means the one that runs this."""
        return None

    async def _load_functions(self) -> None:
        """Write the functions' module and run it once, so that what is wrong with it shows now."""
        assert self._workspace is not None
        name = f"{self._module.module_name}.py"
        await asyncio.to_thread(self._workspace.write, name, self._module.source)
        language = find_language("python")
        assert language is not None
        await self._expect(
            {**self._command(language, name), "wall_seconds": max(self._timeout, 60)}
        )

    async def _expect(self, request: dict[str, Any]) -> None:
        """Run what loads the functions; raise what it said when that did not end well."""
        text, exit_code = "", 0
        frames = Frames(0, self._limits)
        async for frame in self._frames(request):
            for event in frames.events(frame):
                if isinstance(event, Output):
                    text += event.text
                elif isinstance(event, Ended):
                    exit_code = event.exit_code
        if exit_code != 0:
            raise FunctionError(f"Functions failed to load: {text}")

    async def _close(self, *, restarting: bool) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            keep = [str(self._temporary)] if restarting and self._temporary is not None else []
            await connection.close(keep=keep)
            await asyncio.to_thread(_remove_all, self._made, keep)
        if not restarting and self._remove_temporary is not None:
            await asyncio.to_thread(self._remove_temporary)
            self._remove_temporary = self._temporary = None

    def is_at_hand(self) -> bool:
        """See `CodeExecutor`."""
        connection = self._connection
        return self._serves_all_loops() and connection is not None and connection.runs < _CALLERS

    def _serves_all_loops(self) -> bool:
        near = self._is_open and self._connection is not None and self._connection.serves_all_loops
        # Whose input is asked for may take his time, and a large folder takes time to look through.
        return (
            near
            and self._on_input is None
            and self._workspace is not None
            and self._workspace.is_small
        )

    # One generator from here to the connection: each one more is a turn for every event.
    async def _run_block(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        language = find_language(block.language)
        action = action_on(block, language, self._execution_policies) if language else "ignore"
        if language is None or action == "ignore":
            yield Started(number, block.language)
            yield _unknown(number, block) if language is None else Ended(number, 0, "ok")
            return
        assert self._workspace is not None
        workspace = self._workspace
        workspace.check()
        try:
            file = self._lay(block, language, action)
        except OutsideWorkspace:
            yield Started(number, block.language)
            yield Ended(number, 1, "error", message="Filename is not in the workspace")
            return
        code_file = workspace.shown_name(file.name)
        yield Started(number, block.language, code_file)
        if action == "save":
            if not file.is_named:
                workspace.keep(file.name)
            yield Output(number, "stdout", f"Code saved to {code_file}\n")
            yield Ended(number, 0, "ok")
            return
        try:
            frames, received = (
                Frames(number, self._limits),
                self._frames(self._request(language, file), token),
            )
            try:
                async for frame in received:
                    for event in frames.events(frame):
                        if isinstance(event, Ended):
                            since = frames.since if file.since is None else file.since
                            for path, size in workspace.changed(since, besides=file.name):
                                yield FileCreated(number, path, size)
                        yield event
            finally:
                await received.aclose()
        finally:
            if not file.is_named:
                (workspace.remove if self._cleanup_temp_files else workspace.keep)(file.name)

    def _lay(self, block: CodeBlock, language: Language, action: Action) -> _CodeFile:
        """Write the block's file, or leave that to the server, which does it when the block begins.

        Raises `OutsideWorkspace`, `WorkspaceError`.
        """
        assert self._workspace is not None
        workspace, code = self._workspace, silence_pip(block.code, block.language)
        if own_name := file_name(block.code):
            name = workspace.place(own_name)
            content = code if language.comments else code.partition("\n")[2]
            return _CodeFile(name, True, workspace.write(name, content))
        name = workspace.temporary_name(language.suffix)
        if (
            self._server_writes
            and self._cleanup_temp_files
            and action == "execute"
            and len(code) <= _LARGE
        ):
            workspace.expect(name)
            return _CodeFile(name, False, None, code)
        return _CodeFile(name, False, workspace.write_temporary(name, code))

    def _request(self, language: Language, file: _CodeFile) -> dict[str, Any]:
        request = {**self._command(language, file.name), "wall_seconds": self._wall_seconds()}
        if file.since is None:
            request["write"] = self._as_seen(file.name), file.code
        if self._save_output:
            request["save"] = self._as_seen(f"output_{secrets.token_hex(8)}.txt")
        return request

    def _as_seen(self, name: str) -> str:
        """Give the path under which the cell server knows the file `name` of the work folder."""
        assert self._workspace is not None
        return self._workspace.whole_name(name)

    def _frames(
        self, request: dict[str, Any], token: Token | None = None
    ) -> AsyncGenerator[Frame, None]:
        return self._connected().run(request, token, on_input=self._on_input)

    def _connected(self) -> Connection:
        """Give the connection. Raises `BackendLost` when there is none any more: `stop` may be called in another thread."""
        if (connection := self._connection) is None:
            raise BackendLost("The executor was stopped.")
        return connection

    def _wall_seconds(self) -> float:
        return min(self._timeout, self._limits.wall_seconds or self._timeout)

    # saved configurations

    def _to_config(self) -> dict[str, Any]:
        given = self._given_work_dir
        return {
            "timeout": self._timeout,
            "work_dir": None if given is None else str(given),
            "functions": self._module.to_list(),
            "functions_module": self._module.module_name,
            "cleanup_temp_files": self._cleanup_temp_files,
            "packages": list(self._packages),
            "limits": self._limits.to_dict(),
            "execution_policies": dict(self._execution_policies),
            "save_output": self._save_output,
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Self:
        values = dict(config)
        module = values.get("functions_module", "functions")
        if (functions := values.pop("functions", None)) is not None:
            values["functions"] = FunctionModule.from_list(functions, module).functions
        if (limits := values.pop("limits", None)) is not None:
            values["limits"] = Limits.from_dict(limits)
        return cls(**values)


def _unknown(number: int, block: CodeBlock) -> Ended:
    return Ended(number, 1, "error", message=f"unknown language {block.language}")


def _remove_all(paths: Iterable[str], keep: Sequence[str]) -> None:
    for path in paths:
        if path not in keep:
            remove_tree(path)


def texts(name: str, values: object) -> tuple[str, ...]:
    """Give `values` as a tuple of texts. Raises `ValueError`: a lone text is a mistake, and so is anything else."""
    items: list[object] = (
        [] if isinstance(values, str) or not isinstance(values, Sequence) else [*values]
    )
    if not all(isinstance(item, str) for item in items) or (not items and values not in ((), [])):
        raise ValueError(f"{name} must be a list of texts, not {values!r}.")
    return tuple(str(item) for item in items)


def truth(name: str, value: object) -> bool:
    """Give `value`, which must be true or false. Raises `ValueError`."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {value!r}.")
    return value


def command_on_host(
    workspace: Workspace | None, language: Language, name: str, python: str
) -> dict[str, Any]:
    """Give the part of a request that runs the file `name` as a plain program, under its name outside."""
    assert workspace is not None
    path = workspace.whole_name(name)
    if language.name == "python":
        return {"argv": [python, "-u", path]}
    return {"argv": [*(language.argv or ()), path]}
