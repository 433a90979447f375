"""LocalCommandLineCodeExecutor: run blocks as ordinary processes, with the caller's rights."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from ...backends.base import Backend
from ...backends.host import HostBackend
from ...backends.node_stdio import with_blocking_output
from ...environments.interpreter import create_environment, find_interpreter
from ...functions.module import Function
from ...languages import Action, Language
from ...limits import LOCAL_LIMITS, Limits
from ...sandbox.guarantees import Guarantee, host_guarantees
from ...sandbox.probe import is_in_memory, probe
from ..argument_checks import check_folder, check_virtual_env
from ..settings import ExecutorSettings
from .base import CommandLineExecutor
from .host_command import command_on_host

_WARNING = (
    "Using LocalCommandLineCodeExecutor may execute code on the local machine which can be unsafe. "
    "For security, it is recommended to use SandboxCommandLineCodeExecutor instead."
)


@dataclass(frozen=True, kw_only=True)
class HostSettings(ExecutorSettings):
    """See `LocalCommandLineCodeExecutor`."""

    virtual_env_context: SimpleNamespace | None
    env: Mapping[str, str] | None = field(repr=False)


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

    _default_limits: ClassVar[Limits] = LOCAL_LIMITS

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
        self._host = HostSettings(
            virtual_env_context=check_virtual_env(virtual_env_context),
            env=None if env is None else dict(env),
        )
        self._block_python = ""

    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
        import sys

        environment = dict(os.environ if self._host.env is None else self._host.env)
        self._block_python = self._python_path() or sys.executable
        if self._host.virtual_env_context is not None:
            _activate(environment, str(self._host.virtual_env_context.bin_path))
        if packages:
            scratch = tempfile.mkdtemp(prefix="cellblock-env-")
            delete.append(scratch)
            interpreter = await find_interpreter(self._block_python)
            folder = Path(scratch, "env")
            self._block_python = str(
                create_environment(folder, interpreter, [*packages, *interpreter.packages])
            )
            _activate(environment, str(folder / "bin"))
        assert self._workspace is not None
        return HostBackend(
            str(self._workspace.path),
            self.limits,
            with_blocking_output(environment),
            delete,
        )

    def _python_path(self) -> str | None:
        context = self._host.virtual_env_context
        return None if context is None else str(context.env_exe)

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        return command_on_host(self._workspace, language, name, self._block_python)

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what is guaranteed without a sandbox, which is little.

        The first call blocks for a few tenths of a second, because it tests the machine.
        """
        in_memory = is_in_memory(self._settings.work_dir)
        return host_guarantees(probe(), self.limits, in_memory=in_memory)

    def _all_settings(self) -> tuple[ExecutorSettings, ...]:
        return (*super()._all_settings(), self._host)


def _activate(environment: dict[str, str], programs: str) -> None:
    environment["PATH"] = os.pathsep.join([programs, environment.get("PATH") or os.defpath])
    environment["VIRTUAL_ENV"] = os.path.dirname(programs)
