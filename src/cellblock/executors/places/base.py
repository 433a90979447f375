"""Place: where an executor runs blocks."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from ...backends.base import Backend
from ...backends.connection import Connection
from ...backends.sandbox import WORK_DIR
from ...blocks import CodeBlock
from ...cancellation import Token
from ...environments.virtualenv import environment_for, site_packages
from ...errors import ExecutorStopped
from ...events import Event
from ...languages import Language
from ...limits import Limits
from ...runtime.handshake import CellJob
from ...runtime.messages import BlockRequest, InputQuestion, RunRequest, RunTerms
from ...runtime.protocol import Frame
from ...sandbox.guarantees import Guarantee
from ..argument_checks import create_folder, shortest
from ..run_options import RunOptions
from ..settings import BlockProperties, Config, as_parameters, to_config
from ..workspace.temp_dir_removal import TempDirRemoval, remove_all_except
from ..workspace.workspace import Workspace
from .settings import PlaceSettings

OnInput = Callable[[InputQuestion], Coroutine[Any, Any, str]]


class Place(ABC):
    """A work folder, and the connection to the runtime server that runs blocks in it.

    settings         those of the executor that all places have

    Set before the start by what an executor is a part of:

    inner_work_dir   where the sandbox or a container mounts the work folder
    loss_advice      what a user can do after the loss of the server
    users            commands can have other users, if this machine allows it
    """

    inner_work_dir = WORK_DIR
    loss_advice = "The next call starts a new server."
    users = False
    # True if the runtime server can write to the paths that `path_in_backend` returns.
    server_writes_files: ClassVar[bool] = True

    def __init__(self, settings: PlaceSettings) -> None:
        self.settings = settings
        if settings.work_dir is not None:
            create_folder("work_dir", settings.work_dir)
        self._init_state()

    def _init_state(self) -> None:
        """Initialize the state that is not a setting, of a new place or of a copy."""
        self.connection: Connection | None = None
        self._workspace: Workspace | None = None
        self._temp_dir_removal: TempDirRemoval | None = None
        self._temp_dir: Path | None = None
        # The runtime server deletes these too, but it may have been killed before that.
        self._paths_to_delete: list[str] = []

    @property
    def has_network(self) -> bool:
        """Whether blocks reach more than themselves by the network."""
        return True

    def note_on(self, block: CodeBlock) -> str:
        """Return a line for the output of a block that succeeded; "" if there is none."""
        del block
        return ""

    def copy_with_work_dir(self, work_dir: Path | None) -> Self:
        """Return a place with the same settings but another work folder, not open."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self))
        copy.settings = replace(self.settings, work_dir=work_dir)
        copy._init_state()
        return copy

    def __repr__(self) -> str:
        folder = self.settings.work_dir or self._temp_dir
        return "temporary work_dir" if folder is None else f"work_dir={str(folder)!r}"

    def to_config(self) -> Config:
        """Return the settings as JSON values. Raise `ComponentError` if one cannot be saved."""
        return to_config(self.settings)

    # the work folder

    @property
    def work_dir(self) -> Path:
        """The folder that the blocks share. Created if it is temporary and does not exist yet."""
        if self.settings.work_dir is not None:
            return self.settings.work_dir
        if self._temp_dir is None or not self._temp_dir.exists():
            self._temp_dir = Path(tempfile.mkdtemp(prefix="cellblock-work-"))
            self._temp_dir_removal = TempDirRemoval(self, self._temp_dir)
        return self._temp_dir

    @property
    def workspace(self) -> Workspace:
        """The work folder of an open place. Raise `ExecutorStopped` if it was never open."""
        if self._workspace is None:
            raise ExecutorStopped("The executor was stopped. Call start() to use it again.")
        return self._workspace

    def writable_folders(self) -> list[Path]:
        """Return the folders on this machine that code can write to, from any thread."""
        return [] if self._workspace is None else [self._workspace.path]

    @property
    def home_folder(self) -> Path | None:
        """The home of code, if it is a folder on this machine."""
        return None

    def ignore_upload(self, name: str) -> None:
        """Do not report a file that a client has written as a change by code."""
        if self._workspace is not None:
            self._workspace.ignore_upload(name)

    @property
    def seen_work_dir(self) -> str:
        """The path of the work folder as blocks see it."""
        return self.inner_work_dir

    def path_in_backend(self, name: str) -> str:
        """Return the path of the file `name` in the work folder, as the backend sees it."""
        return self.workspace.absolute_path(name)

    def shown_path(self, name: str) -> str:
        """Return the path of the file `name` in the work folder, as results show it."""
        return self.workspace.absolute_path(name)

    # implemented by subclasses

    @abstractmethod
    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
        """Return a backend whose Python can import from the folders in `packages`.

        The backend deletes the paths in `delete` when it closes. Append every path that is created
        here to `delete` immediately, so that it is also deleted if opening fails.
        """

    @abstractmethod
    def command(self, language: Language, name: str) -> CellJob:
        """Return how the file `name` in the work folder is run."""

    def isolated_command(self, python: Language, name: str) -> CellJob:
        """Return how a Python file is run by an interpreter for which blocks can leave nothing.

        The one that cells are forked from has started before any block.
        """
        return self.command(python, name)

    @abstractmethod
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what is guaranteed. The first call can block to test the machine."""

    def _python_path(self) -> str | None:
        """Return the path of the Python to install packages for. `None` means this Python."""
        return None

    async def prepare_copy(self) -> None:
        """Make sure that all files of the work folder can be copied from outside."""
        return None

    # open and close

    async def start_events(
        self, start: Callable[[], Coroutine[Any, Any, None]]
    ) -> AsyncGenerator[Event, None]:
        """Await `start()`, which opens the place, and yield the events of that."""
        await start()
        for event in ():
            yield event

    async def open(self, load_functions: Callable[[], Awaitable[None]] | None = None) -> None:
        """Open the place, and call `load_functions`. If it raises, it leaves nothing behind."""
        self._open_workspace()
        required = (*self.settings.packages, *self.settings.functions.packages)
        packages: tuple[str, ...] = ()
        if required:
            packages = await self._install_packages(required)
        delete = self._temp_dirs_to_delete()
        self._paths_to_delete = delete
        try:
            backend = await self._make_backend(packages, delete)
            self.connection = await backend.open()
            self.connection.loss_advice = self.loss_advice
        except BaseException:
            remove_all_except(delete, [str(self._temp_dir)])
            raise
        try:
            await self._finish_opening(load_functions)
        except BaseException:
            await self.close(restarting=True)
            raise

    def _open_workspace(self) -> None:
        given = self.settings.work_dir
        self._workspace = Workspace(self.work_dir, None if given is None else str(given))

    async def _finish_opening(self, load_functions: Callable[[], Awaitable[None]] | None) -> None:
        if load_functions is not None:
            await load_functions()

    def _temp_dirs_to_delete(self) -> list[str]:
        """Return the temporary work folder, unless it belongs to a parent process."""
        removal = self._temp_dir_removal
        return [str(self._temp_dir)] if removal is not None and removal.is_own else []

    async def _remove_temp_dir(self) -> None:
        if self._temp_dir_removal is not None:
            await asyncio.to_thread(self._temp_dir_removal.remove)
        self._temp_dir_removal = self._temp_dir = None

    async def _install_packages(self, required: tuple[str, ...]) -> tuple[str, ...]:
        """Install the `required` packages and return the folders that contain them.

        Raise `PackageError`.
        """
        environment = await environment_for(required, python=self._python_path())
        return (str(site_packages(environment)),)

    async def close(self, *, restarting: bool) -> None:
        """Kill everything and clean up. Keep the work folder if `restarting`."""
        connection, self.connection = self.connection, None
        if connection is not None:
            keep = [str(self._temp_dir)] if restarting and self._temp_dir is not None else []
            try:
                await connection.close(keep=keep)
            finally:
                await asyncio.to_thread(remove_all_except, self._paths_to_delete, keep)
        if not restarting:
            await self._remove_temp_dir()

    # requests

    def has_lost_server(self) -> bool:
        """Return True if the next block needs a new server, because the present one has ended."""
        return self.connection is not None and self.connection.has_lost_server()

    def watch_server(self) -> None:  # noqa: B027 - places of this machine need nothing
        """Notice that the server does not answer any more, if that is no end of its stream."""

    def require_connection(self) -> Connection:
        """Return the connection. Raise `ExecutorStopped` if another thread has called `stop`."""
        if (connection := self.connection) is None:
            raise ExecutorStopped("The executor was stopped. Call start() to use it again.")
        return connection

    def frames(
        self, request: BlockRequest, token: Token | None = None, on_input: OnInput | None = None
    ) -> AsyncGenerator[Frame, None]:
        """Run a block, and yield its frames. See `Connection.run`."""
        return self.require_connection().run(request, token, on_input=on_input)

    def program_request(self, request: RunRequest) -> BlockRequest:
        """Return the request to run a block as a fresh process of this place."""
        return request

    def terms(
        self, options: RunOptions, *, write: tuple[str, str] | None = None, waited: float = 0.0
    ) -> RunTerms:
        """Return the terms of a block. `write`: the path and the text of a file to write before."""
        save = None
        if self.settings.save_output:
            save = self.path_in_backend(f"output_{secrets.token_hex(8)}.txt")
        seconds = self.wall_seconds(options)
        return RunTerms(seconds, options.written_bytes, waited, write, save, options.cpu_seconds)

    def wall_seconds(self, options: RunOptions) -> float | None:
        """Return the time limit of a block."""
        timeout = None if options.replaces_timeout else self.settings.timeout
        return shortest(timeout, self.limits.wall_seconds, options.run_seconds)

    @property
    def limits(self) -> Limits:
        """How much one block may use."""
        return self.settings.limits


def has_network(executor: object) -> bool:
    """Return False if the blocks of `executor` are known to have no network."""
    return getattr(getattr(executor, "place", None), "has_network", True)


class PlaceProperties(BlockProperties[PlaceSettings]):
    """The public properties of an executor that runs blocks in a place."""

    _uncalled_overrides = as_parameters("work_dir bind_dir cleanup_temp_files")

    def __init__(self, place: Place) -> None:
        self._place, self._settings = place, place.settings
        super().__init__()

    @property
    def place(self) -> Place:
        """Where blocks run, for what the executor is a part of."""
        return self._place

    @property
    def work_dir(self) -> Path:
        """The folder that the blocks share. Created if it is temporary and does not exist yet."""
        return self._place.work_dir

    @property
    def cleanup_temp_files(self) -> bool:
        """Whether the file of a block is removed when the block has ended."""
        return self._settings.cleanup_temp_files

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what is guaranteed with these settings, and by which mechanism.

        The first call can block for a few tenths of a second, because it tests the machine.
        """
        return self._place.guarantees()

    def _repr_details(self) -> list[str]:
        return [f"timeout={self.timeout}", repr(self._place)]
