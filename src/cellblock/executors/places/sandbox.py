"""SandboxPlace: run blocks in a sandbox on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Self, get_args

from ...backends.base import Backend
from ...backends.landlock import LandlockBackend
from ...backends.other_systems import check_sandbox_system
from ...backends.protected_paths import ProtectedPath, find_protected_paths
from ...backends.sandbox import ENVIRONMENT
from ...backends.scratch import create_scratch
from ...backends.shared_server import SharedSandboxBackend
from ...environments.interpreter import create_environment, create_own_commands
from ...environments.virtualenv import find_interpreter
from ...languages import Language
from ...policy import Policy
from ...runtime.handshake import CellJob
from ...sandbox.guarantees import Guarantee, Isolation, sandbox_guarantees
from ...sandbox.probe import is_in_memory, probe
from ..argument_checks import check_policy, check_strings, check_virtual_env
from ..settings import Config, ExecutorSettings, to_config
from ..workspace import ownership_lease
from ..workspace.workspace import Workspace
from .base import Place
from .host_command import command_on_host
from .settings import PlaceSettings


@dataclass(frozen=True, kw_only=True)
class SandboxSettings(ExecutorSettings):
    """See `SandboxCommandLineCodeExecutor`."""

    virtual_env_context: SimpleNamespace | None
    policy: Policy
    preload: tuple[str, ...]
    isolation: Isolation

    @classmethod
    def checked(
        cls,
        virtual_env_context: SimpleNamespace | None,
        policy: Policy | None,
        preload: Sequence[str],
        isolation: Isolation = "full",
    ) -> Self:
        """Return the settings. Raise `ValueError` if one is invalid."""
        if isolation not in get_args(Isolation):
            raise ValueError(
                f"isolation must be one of {', '.join(get_args(Isolation))}, not {isolation!r}."
            )
        return cls(
            virtual_env_context=check_virtual_env(virtual_env_context),
            policy=check_policy(policy),
            preload=check_strings("preload", preload),
            isolation=isolation,
        )


class SandboxPlace(Place):
    """See `SandboxCommandLineCodeExecutor`.

    Set before the start by what an executor is a part of:

    sharing_group   executors with another one do not share a runtime server
    """

    sharing_group = ""

    def __init__(self, settings: PlaceSettings, sandbox: SandboxSettings) -> None:
        super().__init__(settings)
        self.sandbox = sandbox
        self._block_python = ""
        self._isolated_python: CellJob | None = None

    def _init_state(self) -> None:
        super()._init_state()
        self.scratch: Path | None = None  # contains the home folder and the environment
        self._work_dir_lease: ownership_lease.OwnershipLease | None = None
        self._protected: tuple[ProtectedPath, ...] = ()

    @property
    def has_network(self) -> bool:
        """See `Place`."""
        return self.sandbox.policy.network != "none"

    def guarantees(self) -> tuple[Guarantee, ...]:
        """See `Place`."""
        in_memory = is_in_memory(self.settings.work_dir)
        return sandbox_guarantees(
            probe(),
            self.limits,
            self.sandbox.policy,
            self.sandbox.isolation,
            in_memory=in_memory,
        )

    async def open(self, load_functions: Callable[[], Awaitable[None]] | None = None) -> None:
        """See `Place`."""
        check_sandbox_system()
        async with self._lease_work_dir():
            await super().open(load_functions)

    async def close(self, *, restarting: bool) -> None:
        """See `Place`."""
        try:
            await super().close(restarting=restarting)
        finally:
            await self._release_work_dir()

    @contextlib.asynccontextmanager
    async def _lease_work_dir(self) -> AsyncGenerator[None]:
        """Hold a lease on the work folder, because opening may change its owner."""
        if self.settings.work_dir is None:
            yield
            return
        self._work_dir_lease = ownership_lease.OwnershipLease(str(self.settings.work_dir))
        try:
            yield
            self._work_dir_lease.record_owner()
        except BaseException:
            await self._release_work_dir()
            raise

    async def _release_work_dir(self) -> None:
        lease, self._work_dir_lease = self._work_dir_lease, None
        if lease is not None:
            await asyncio.to_thread(lease.release)

    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
        interpreter = await find_interpreter(self._python_path())
        visible_packages = (*packages, *interpreter.packages)
        scratch = self.scratch = create_scratch("cellblock-scratch-", self.workspace.path)
        delete.append(str(scratch))
        (scratch / "home").mkdir()
        full = self.sandbox.isolation == "full"
        create_environment(
            scratch / "env",
            interpreter,
            visible_packages,
            visible_path=ENVIRONMENT if full else None,
        )
        self._block_python = str(scratch / "env" / "bin" / "python")
        if not full:
            create_own_commands(scratch / "commands", interpreter, self._block_python)
            # Not that of the environment, in which blocks can install what it runs at its start.
            self._isolated_python = CellJob(
                argv=(interpreter.program, "-s", "-P", "-u"),
                env={"PYTHONPATH": os.pathsep.join(visible_packages)},
            )
        await self._protect_startup_files(self.workspace)
        kind = (
            functools.partial(
                SharedSandboxBackend,
                protected=self._protected,
                inner_work_dir=self.inner_work_dir,
                group=self.sharing_group,
            )
            if full
            else LandlockBackend
        )
        return kind(
            work_dir=str(self.workspace.path),
            scratch=str(scratch),
            interpreter=interpreter,
            packages=visible_packages,
            limits=self.limits,
            policy=self.sandbox.policy,
            preload=self.sandbox.preload,
            delete=delete,
        )

    async def _protect_startup_files(self, workspace: Workspace) -> None:
        """Find what to protect in a work folder of the caller."""
        self._protected = ()
        is_given = self.settings.work_dir is not None
        if (
            is_given
            and self.sandbox.isolation == "full"
            and self.sandbox.policy.protect_startup_files
        ):
            found = await asyncio.to_thread(find_protected_paths, str(workspace.path))
            self._protected = found
            workspace.read_only = tuple(path for path, is_writable in found if not is_writable)

    @property
    def _protects_startup_files(self) -> bool:
        return self.sandbox.isolation == "full" and self.sandbox.policy.protect_startup_files

    async def _finish_opening(self, load_functions: Callable[[], Awaitable[None]] | None) -> None:
        await super()._finish_opening(load_functions)
        # Opening can change their owner, which would look like a change by a block.
        if self.settings.work_dir is not None:
            await asyncio.to_thread(
                self.workspace.record_startup_files, undo_git_files=self._protects_startup_files
            )

    def writable_folders(self) -> list[Path]:
        """See `Place`."""
        return [*super().writable_folders(), *([] if self.scratch is None else [self.scratch])]

    @property
    def home_folder(self) -> Path | None:
        """See `Place`."""
        return None if self.scratch is None else self.scratch / "home"

    def forget_files(self) -> None:
        """Report files as new that earlier blocks have left. Raise `WorkspaceError`."""
        self._workspace = Workspace(self.work_dir)

    def _python_path(self) -> str | None:
        context = self.sandbox.virtual_env_context
        return None if context is None else str(context.env_exe)

    @property
    def seen_work_dir(self) -> str:
        """See `Place`."""
        is_full = self.sandbox.isolation == "full"
        return self.inner_work_dir if is_full else str(self.workspace.path)

    def command(self, language: Language, name: str) -> CellJob:
        """See `Place`."""
        if self.sandbox.isolation != "full":
            return command_on_host(self.workspace, language, name, self._block_python)
        path = f"{self.inner_work_dir}/{name}"
        if language.name == "python":
            return CellJob(path)
        return CellJob(argv=(*(language.argv or ()), path))

    def isolated_command(self, python: Language, name: str) -> CellJob:
        """See `Place`."""
        if (job := self._isolated_python) is None:
            return self.command(python, name)
        return job._replace(argv=(*(job.argv or ()), self.workspace.absolute_path(name)))

    def to_config(self) -> Config:
        """See `Place`."""
        return {**super().to_config(), **to_config(self.sandbox)}
