"""SandboxCommandLineCodeExecutor: run blocks in a sandbox on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

from ...backends.base import Backend
from ...backends.landlock import LandlockBackend
from ...backends.other_systems import check_sandbox_system
from ...backends.protected_paths import ProtectedPath, find_protected_paths
from ...backends.sandbox import ENVIRONMENT
from ...backends.scratch import create_scratch
from ...backends.shared_server import SharedSandboxBackend
from ...environments.interpreter import (
    create_environment,
    create_own_commands,
    find_interpreter,
)
from ...functions.module import Function
from ...languages import Action, Language
from ...limits import SANDBOX_LIMITS, Limits
from ...policy import Policy
from ...sandbox.guarantees import Guarantee, Isolation, sandbox_guarantees
from ...sandbox.probe import is_in_memory, probe
from ..argument_checks import check_policy, check_strings, check_virtual_env
from ..settings import ExecutorSettings
from ..workspace import ownership_lease
from ..workspace.workspace import Workspace
from .base import CommandLineExecutor
from .host_command import command_on_host


@dataclass(frozen=True, kw_only=True)
class SandboxSettings(ExecutorSettings):
    """See `SandboxCommandLineCodeExecutor`."""

    virtual_env_context: SimpleNamespace | None
    policy: Policy
    preload: tuple[str, ...]
    isolation: Isolation


class SandboxCommandLineCodeExecutor(CommandLineExecutor):
    """Run blocks in a sandbox. They see their work folder, and read-only Python and programs.

    policy                what else blocks may read, write and reach. By default no network
    preload               modules to import once, before the blocks start. Starting raises
                          `PackageError` if a module cannot be imported
    virtual_env_context   a virtual environment whose Python, packages and commands blocks use
    isolation             "full", or the weaker "landlock", which needs no namespaces.
                          See `guarantees`

    Blocks see the work folder as /workspace. They have a home folder and a Python environment of
    their own: after `pip install` in one block, later blocks can import the package. `restart`
    resets both. Executors with the same settings in one process share a runtime server, but see
    nothing of each other. All starts after the first take milliseconds. For the other parameters
    see `CommandLineExecutor`. Starting raises `SandboxUnavailable` if this machine does not
    support the sandbox.
    """

    def __init__(
        self,
        timeout: float | None = 60,
        work_dir: str | os.PathLike[str] | None = None,
        functions: Sequence[Function] = (),
        functions_module: str = "functions",
        cleanup_temp_files: bool = True,
        virtual_env_context: SimpleNamespace | None = None,
        *,
        packages: Sequence[str] = (),
        limits: Limits = SANDBOX_LIMITS,
        policy: Policy | None = None,
        preload: Sequence[str] = (),
        isolation: Isolation = "full",
        execution_policies: Mapping[str, Action] | None = None,
        save_output: bool = False,
    ) -> None:
        super().__init__(
            timeout,
            work_dir,
            functions,
            functions_module,
            cleanup_temp_files,
            packages=packages,
            limits=limits,
            execution_policies=execution_policies,
            save_output=save_output,
        )
        if isolation not in get_args(Isolation):
            raise ValueError(
                f"isolation must be one of {', '.join(get_args(Isolation))}, not {isolation!r}."
            )
        self._sandbox = SandboxSettings(
            virtual_env_context=check_virtual_env(virtual_env_context),
            policy=check_policy(policy),
            preload=check_strings("preload", preload),
            isolation=isolation,
        )

    sharing_group = ""  # executors with another one do not share a runtime server

    def _init_state(self) -> None:
        super()._init_state()
        self._scratch: Path | None = None  # contains the home folder and the environment
        self._work_dir_lease: ownership_lease.OwnershipLease | None = None
        self._protected: tuple[ProtectedPath, ...] = ()

    @property
    def policy(self) -> Policy:
        """What blocks may read, write and reach."""
        return self._sandbox.policy

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what is guaranteed on this machine with these settings, and by which mechanism.

        The first call blocks for a few tenths of a second, because it tests the machine.
        """
        in_memory = is_in_memory(self._settings.work_dir)
        return sandbox_guarantees(
            probe(),
            self.limits,
            self.policy,
            self._sandbox.isolation,
            in_memory=in_memory,
        )

    async def _open(self) -> None:
        check_sandbox_system()
        async with self._lease_work_dir():
            await super()._open()

    async def _close(self, *, restarting: bool) -> None:
        try:
            await super()._close(restarting=restarting)
        finally:
            await self._release_work_dir()

    @contextlib.asynccontextmanager
    async def _lease_work_dir(self) -> AsyncGenerator[None]:
        """Hold a lease on the work folder, because opening may change its owner."""
        if self._settings.work_dir is None:
            yield
            return
        self._work_dir_lease = ownership_lease.OwnershipLease(str(self._settings.work_dir))
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
        assert self._workspace is not None
        scratch = self._scratch = create_scratch("cellblock-scratch-", self._workspace.path)
        delete.append(str(scratch))
        (scratch / "home").mkdir()
        full = self._sandbox.isolation == "full"
        create_environment(
            scratch / "env",
            interpreter,
            visible_packages,
            visible_path=ENVIRONMENT if full else None,
        )
        self._block_python = str(scratch / "env" / "bin" / "python")
        if not full:
            create_own_commands(scratch / "commands", interpreter, self._block_python)
        await self._protect_startup_files(self._workspace)
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
            work_dir=str(self._workspace.path),
            scratch=str(scratch),
            interpreter=interpreter,
            packages=visible_packages,
            limits=self.limits,
            policy=self.policy,
            preload=self._sandbox.preload,
            delete=delete,
        )

    async def _protect_startup_files(self, workspace: Workspace) -> None:
        """Find what to protect in a work folder of the caller."""
        self._protected = ()
        is_given = self._settings.work_dir is not None
        if is_given and self._sandbox.isolation == "full" and self.policy.protect_startup_files:
            found = await asyncio.to_thread(find_protected_paths, str(workspace.path))
            self._protected = found
            workspace.read_only = tuple(path for path, is_writable in found if not is_writable)

    async def _record_startup_files(self) -> None:
        if self._settings.work_dir is not None and self._workspace is not None:
            await asyncio.to_thread(
                self._workspace.record_startup_files,
                undo_git_files=self._sandbox.isolation == "full"
                and self.policy.protect_startup_files,
            )

    @property
    def scratch(self) -> Path | None:
        """The folder with the home folder and the environment of blocks, since the first start."""
        return self._scratch

    def writable_folders(self) -> list[Path]:
        """See `CommandLineExecutor`."""
        return [*super().writable_folders(), *([] if self._scratch is None else [self._scratch])]

    def forget_files(self) -> None:
        """Report files as new that earlier blocks have left. Raise `WorkspaceError`."""
        self._workspace = Workspace(self.work_dir)

    def _python_path(self) -> str | None:
        context = self._sandbox.virtual_env_context
        return None if context is None else str(context.env_exe)

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        if self._sandbox.isolation != "full":
            return command_on_host(self._workspace, language, name, self._block_python)
        path = f"{self.inner_work_dir}/{name}"
        if language.name == "python":
            return {"script": path}
        return {"argv": [*(language.argv or ()), path]}

    def _all_settings(self) -> tuple[ExecutorSettings, ...]:
        return (*super()._all_settings(), self._sandbox)
