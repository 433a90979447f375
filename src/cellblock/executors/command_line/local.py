"""LocalCommandLineCodeExecutor: run blocks as ordinary processes, with the caller's rights."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from ...functions.module import Function
from ...languages import Action
from ...limits import LOCAL_LIMITS, Limits
from ..argument_checks import check_folder, check_virtual_env
from ..places.host import HostPlace, HostSettings
from ..places.settings import PlaceSettings
from .base import CommandLineExecutor

_WARNING = (
    "Using LocalCommandLineCodeExecutor may execute code on the local machine which can be unsafe. "
    "For security, it is recommended to use SandboxCommandLineCodeExecutor instead."
)


class LocalCommandLineCodeExecutor(CommandLineExecutor):
    """Run blocks as ordinary processes on this machine, without a sandbox.

    Blocks have the caller's rights.

    virtual_env_context   the result of `create_virtual_env` or
                          `venv.EnvBuilder.ensure_directories`. Its Python runs the blocks
    env                   the complete environment of the blocks. `None` copies the caller's
                          environment at the start. If Node is installed, NODE_OPTIONS also loads
                          a module of Cellblock, because Node can lose output without it

    For the other parameters see `CommandLineExecutor`. By default `limits` only limits the output.
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
        limits: Limits = LOCAL_LIMITS,
        env: Mapping[str, str] | None = None,
        execution_policies: Mapping[str, Action] | None = None,
        save_output: bool = False,
    ) -> None:
        warnings.warn(_WARNING, UserWarning, stacklevel=2)
        folder = check_folder("work_dir", work_dir)
        if folder is not None and folder.resolve() == Path.cwd():
            warnings.warn(
                "Using the current directory as work_dir is deprecated.",
                DeprecationWarning,
                stacklevel=2,
            )
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
            default_limits=LOCAL_LIMITS,
        )
        host = HostSettings(
            virtual_env_context=check_virtual_env(virtual_env_context),
            env=None if env is None else dict(env),
        )
        super().__init__(HostPlace(settings, host))
