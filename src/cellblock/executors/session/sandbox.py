"""SandboxSessionCodeExecutor: a live session in a sandbox, restored if its own code kills it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ...functions.module import Function
from ...languages import Action
from ...limits import SANDBOX_LIMITS, Limits
from ...policy import Policy
from ..places.sandbox import SandboxSettings
from ..places.settings import PlaceSettings
from .base import SessionExecutor, Variable
from .sandbox_place import SandboxSessionPlace
from .sandbox_server import SandboxSessionServer
from .settings import InputCallback, SessionSettings

__all__ = ["SandboxSessionCodeExecutor", "Variable"]


class SandboxSessionCodeExecutor(SessionExecutor):
    """Run Python blocks in one live interpreter in a sandbox, as a notebook does.

    Variables, imports and files stay from block to block. If a block kills its process, for example
    with `os._exit` or by running out of memory, only that block fails. The session continues with
    the variables from before the block, and the result says so (`session_restored`, `notice`).
    Blocks in other languages are fresh processes in the same work folder.

    server   a running `SandboxSessionServer`. `None` uses one that all sessions with the same
             settings share. With a server, do not pass `packages`, `limits`, `policy`, `preload` or
             `virtual_env_context`: the server defines them

    For the other parameters see `SessionExecutor` and `SandboxCommandLineCodeExecutor`. Results are
    `SessionCodeResult` objects. Starting raises `SandboxUnavailable` if this machine does not
    support the sandbox, and `BackendError` if the blocks' Python has no IPython.
    """

    if TYPE_CHECKING:

        @property
        def place(self) -> SandboxSessionPlace: ...

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
        checkpoints: bool = True,
        keep_processes: bool = False,
        input_callback: InputCallback | None = None,
        server: SandboxSessionServer | None = None,
        execution_policies: Mapping[str, Action] | None = None,
        save_output: bool = False,
    ) -> None:
        if server is not None:
            if (
                packages
                or policy is not None
                or preload
                or virtual_env_context
                or limits is not SANDBOX_LIMITS
            ):
                raise ValueError(
                    "packages, limits, policy, preload and virtual_env_context are defined by the "
                    "server. Pass them to SandboxSessionServer."
                )
            limits, policy = server.runtime_server.limits, server.runtime_server.policy
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
        sandbox = SandboxSettings.checked(virtual_env_context, policy, preload)
        live = SessionSettings.checked(checkpoints, keep_processes, input_callback)
        super().__init__(SandboxSessionPlace(settings, sandbox, server), live)

    @property
    def policy(self) -> Policy:
        """What blocks may read, write and reach."""
        return self.place.sandbox.policy
