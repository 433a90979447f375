"""SandboxCommandLineCodeExecutor: run blocks in a sandbox on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ...functions.module import Function
from ...languages import Action
from ...limits import SANDBOX_LIMITS, Limits
from ...policy import Policy
from ...sandbox.guarantees import Isolation
from ..places.sandbox import SandboxPlace, SandboxSettings
from ..places.settings import PlaceSettings
from .base import CommandLineExecutor


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

    if TYPE_CHECKING:

        @property
        def place(self) -> SandboxPlace: ...

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
        settings = PlaceSettings.checked(
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
        sandbox = SandboxSettings.checked(virtual_env_context, policy, preload, isolation)
        super().__init__(SandboxPlace(settings, sandbox))

    @property
    def policy(self) -> Policy:
        """What blocks may read, write and reach."""
        return self.place.sandbox.policy
