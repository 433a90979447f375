"""DockerSessionCodeExecutor: a live session in a container."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import time
import weakref
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from ...backends.base import Connection, Place
from ...backends.container import FIRST_SESSION
from ...cancellation import Token
from ...containers import users
from ...containers.client import Client
from ...containers.spec import WORK_DIR, ContainerSettings
from ...errors import BackendError, BackendLost, CheckpointError
from ...languages import Language
from ...runtime.linux.rmtree import remove_tree
from ...runtime.protocol import Frame
from ..command_line.docker import IMAGE, DockerCommandLineCodeExecutor, lost_ending
from ..workspace import snapshot
from ..workspace.temp_dirs import Attic
from ..workspace.workspace import Workspace
from .base import InputCallback
from .checkpoint import Checkpoint
from .checkpointing import CopiedSession, checked

_NO_MOUNTS = list[str]()
_BRANCHES = "/branches"  # where the work folders of branches are, inside
_DETACHED = "The work folder of a branch would have to be one that the engine sees, and with {} there is none: fork() cannot be."


class DockerSessionCodeExecutor(CopiedSession, DockerCommandLineCodeExecutor):
    """Run Python blocks in one live interpreter in a container, with all that `SandboxSessionCodeExecutor` offers.

    The image needs Python and IPython. For the parameters see `LiveSession` and `DockerCommandLineCodeExecutor`; results are
    `SessionCodeResult`s. Starting raises `BackendError` when the image has no IPython, else as the latter does.

    What is less than in the sandbox, since a container has one set of namespaces, and one user:

    * A session, its copies, its branches and its blocks in other languages share the container: /tmp, /dev/shm, the home,
      the network, the list of processes. They can send each other signals, and the cell server too. Code that ends the server
      costs the session: all else in the container is ended too, and the result says that the session was started afresh.
    * A branch's work folder is not /workspace, but one below /branches. It is the branch's current folder, and open files are
      those in it; but a path that code wrote out in full, or kept, is still the one of the session that was forked.
    * A branch ends with its container, which lives until the last of its sessions is stopped. `fork` is refused for a
      container that is kept (`auto_remove`, `stop_container`), with `bind_dir`, and with `transfer="copy"`; there, where the
      work folder is another one than ours, so is `checkpoint`.
    * Memory, processes and processors are limited for the container as a whole.
    """

    def __init__(
        self,
        image: str = IMAGE,
        container_name: str | None = None,
        *,
        checkpoints: bool = True,
        keep_processes: bool = False,
        input_callback: InputCallback | None = None,
        **options: Any,
    ) -> None:
        DockerCommandLineCodeExecutor.__init__(self, image, container_name, **options)
        self._live(
            checkpoints=checkpoints, keep_processes=keep_processes, input_callback=input_callback
        )
        self._household: _Household | None = None
        self._birthplace: Attic | None = None  # where a branch has its work folder

    # open and close

    async def _open(self) -> None:
        self._household, self._number, self._inside = _Household(), FIRST_SESSION, WORK_DIR
        try:
            await super()._open()
        except BaseException:
            await self._move_out()
            raise

    async def _make_place(self, packages: tuple[str, ...], delete: list[str]) -> Place:
        await super()._make_place(packages, delete)
        assert self._place is not None
        self._place = replace(self._place, sessions=True)
        return self._place

    def _settings(self, client: Client) -> ContainerSettings:
        settings = super()._settings(client)
        if self._household is None or self._detached() is not None:
            return settings
        folder = self._household.branches = self._household.attic().room("branches")
        users.give(folder, client, settings.user)
        return replace(
            settings, volumes={**settings.volumes, str(folder): {"bind": _BRANCHES, "mode": "rw"}}
        )

    def _detached(self) -> str | None:
        """Name the option that keeps the engine from seeing folders that are made for branches."""
        if self._given["transfer"] == "copy":
            return 'transfer="copy"'
        if self._bind_dir is not None:
            return "bind_dir"
        return "a container that is kept" if self._is_kept else None

    async def _close(self, *, restarting: bool) -> None:
        connection = self._connection
        self._forget_marks()
        if self._household is not None and self._household.members > 1:
            if connection is not None and connection.is_open:
                with contextlib.suppress(BackendError):  # its cell has failed before
                    await connection.ask({"op": "close", "session": self._number})
            # The container is the others' from now on.
            self._connection = self._tenant = self._place = self._client = None
        try:
            await super()._close(restarting=restarting)
        finally:
            await self._move_out()
            if not restarting and self._birthplace is not None:
                birthplace, self._birthplace = self._birthplace, None
                await birthplace.leave()

    async def _move_out(self) -> None:
        household, self._household = self._household, None
        if household is not None:
            await household.leave()

    def _own_folder(self) -> Path:
        assert self._household is not None
        return self._household.attic().room("copies")

    # blocks

    def _check_place(self) -> None:
        """A server that has ended is found out by who runs the block, and begun again."""

    def _as_seen(self, name: str) -> str:
        return f"{self._inside}/{name}"

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        session = {
            "op": "program",
            "session": self._number,
            "mounts": _NO_MOUNTS,
            "cwd": self._inside,
        }
        return {**super()._command(language, name), **session}

    async def _frames(
        self, request: dict[str, Any], token: Token | None = None
    ) -> AsyncGenerator[Frame, None]:
        connection, begun = self._connection, time.monotonic()
        assert connection is not None
        try:
            async with contextlib.aclosing(super()._frames(request, token)) as frames:
                async for frame in frames:
                    yield frame
        except BackendLost:
            raise
        except BackendError as error:
            if await self._is_there(connection):
                raise
            became = await self._recover(connection, BackendLost(str(error)))
            yield lost_ending(request, time.monotonic() - begun, became)

    async def _is_there(self, connection: Connection) -> bool:
        """Tell whether the session is still known to its server, whose first process for it code may have ended."""
        with contextlib.suppress(BackendError):
            await connection.ask({"op": "drop", "session": self._number, "mark": ""})
            return True
        return False

    async def _recover(self, lost: Connection, why: BackendLost) -> str:
        if self._number != FIRST_SESSION:
            raise BackendLost(f"{why} The branch is gone: make it again.") from why
        became = await super()._recover(lost, why)
        self._forget_marks()
        return became

    # checkpoints and branches

    async def _checkpoint(self, lifetime: float | None) -> Checkpoint:
        if self._given["transfer"] == "copy":
            raise CheckpointError(
                'With transfer="copy" the work folder is in the container alone, and cannot be frozen.'
            )
        return await super()._checkpoint(lifetime)

    async def _fork_one(self, mark: Checkpoint | None) -> Self:
        assert self._workspace is not None
        assert self._household is not None
        assert self._connection is not None
        if why := self._detached():
            raise CheckpointError(_DETACHED.format(why))
        branch, number, name = (
            self._same_again(),
            next(self._household.numbers),
            secrets.token_hex(8),
        )
        folder = self._household.branches / name
        source = mark.snapshot.path if mark is not None else self._workspace.path
        request = {
            "op": "fork",
            "session": self._number,
            "into": number,
            "mounts": _NO_MOUNTS,
            "delete": _NO_MOUNTS,
            "folder": f"{_BRANCHES}/{name}",
            "checkpoint": self._keeps_copies,
            "mark": mark.name if mark is not None else None,
        }
        try:
            await asyncio.to_thread(
                _copy_folder, source, folder, self._workspace.path, self._limits.written_bytes
            )
            checked(await self._have_made(request), CheckpointError)
        except BaseException:
            remove_tree(str(folder))
            raise
        branch._move_in(self, number, folder, request["folder"])
        branch._blocks = mark.blocks if mark is not None else self._blocks
        return branch

    async def _have_made(self, request: dict[str, Any]) -> dict[str, Any]:
        connection = self._connection
        assert connection is not None
        try:
            return (await connection.ask(request))[0]
        except asyncio.CancelledError:
            if connection.is_open:  # it was made all the same, and belongs to nobody
                with contextlib.suppress(BackendError):
                    await connection.ask({"op": "close", "session": request["into"]})
            raise

    def _same_again(self) -> Self:
        branch = type(self)._from_config(
            {**self._to_config(), "work_dir": None, "container_name": None}
        )
        branch._live(
            checkpoints=self._keeps_copies,
            keep_processes=self._keep_processes,
            input_callback=self._input_callback,
        )
        return branch

    def _move_in(
        self, other: DockerSessionCodeExecutor, number: int, folder: Path, inside: Any
    ) -> None:
        """Be a branch, which lives in the container of `other`."""
        assert other._household is not None
        self._household, self._birthplace = other._household, other._household.attic()
        self._household.members += 1
        self._birthplace.take()
        self._client, self._tenant, self._place = other._client, other._tenant, other._place
        self._connection, self._number, self._inside = other._connection, number, str(inside)
        self._temporary = folder
        self._remove_temporary = weakref.finalize(self, remove_tree, str(folder))
        self._workspace = Workspace(folder)
        self._is_open = True


class _Household:
    """The sessions of one container, which ends with the last of them; `branches` holds the work folders of branches."""

    def __init__(self) -> None:
        self.members = 1
        self.numbers = itertools.count(FIRST_SESSION + 1)
        self.branches = Path()
        self._attic: Attic | None = None

    def attic(self) -> Attic:
        """Give the place for its folders."""
        if self._attic is None:
            self._attic = Attic()
            self._attic.take()
        return self._attic

    async def leave(self) -> None:
        """One less."""
        self.members -= 1
        if self.members == 0 and self._attic is not None:
            await self._attic.leave()


def _copy_folder(source: Path, target: Path, like: Path, most: int | None) -> None:
    """Copy `source` to `target`, which then belongs to whom `like` does."""
    target.mkdir(mode=0o700)
    snapshot.copy(source, target, most)
    status = os.stat(like)
    with contextlib.suppress(PermissionError):  # whoever is not root owns everything here anyway
        os.chown(target, status.st_uid, status.st_gid)
