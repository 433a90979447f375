"""LocalCommandLineCodeExecutor: blocks as plain processes of this machine, with the caller's rights."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ...backends.base import Place
from ...backends.host import HostPlace
from ...backends.node_stdio import with_whole_output
from ...environments.interpreter import find_interpreter, lay_environment
from ...functions.module import Function
from ...languages import Action, Language
from ...limits import LOCAL_LIMITS, Limits
from ...sandbox.guarantees import Guarantee, host_guarantees
from ...sandbox.probe import probe
from .base import CommandLineExecutor, command_on_host

_WARNING = (
    "Using LocalCommandLineCodeExecutor may execute code on the local machine which can be unsafe. "
    "For security, it is recommended to use SandboxCommandLineCodeExecutor instead."
)


class LocalCommandLineCodeExecutor(CommandLineExecutor):
    """Run blocks as plain processes of this machine: no sandbox, the caller's own rights.

    virtual_env_context   what `create_virtual_env` or `venv.EnvBuilder.ensure_directories` gave: its Python runs the blocks
    env                   the blocks' whole environment; `None`: the caller's, as it is at the start. Where there is a Node,
                          NODE_OPTIONS names a module of ours as well, without which it would lose output

    For the other parameters see `CommandLineExecutor`. `limits` bounds nothing but the output unless given.
    """

    def __init__(
        self,
        timeout: float = 60,
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
        if work_dir is not None and Path(work_dir).resolve() == Path.cwd():
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
        self._virtual_env_context = virtual_env_context
        self._env = None if env is None else dict(env)
        self._program = ""

    async def _make_place(self, packages: tuple[str, ...], delete: list[str]) -> Place:
        import sys

        environment = dict(os.environ if self._env is None else self._env)
        self._program = self._python() or sys.executable
        if self._virtual_env_context is not None:
            _activate(environment, str(self._virtual_env_context.bin_path))
        if packages:
            scratch = tempfile.mkdtemp(prefix="cellblock-env-")
            delete.append(scratch)
            interpreter = await find_interpreter(self._program)
            folder = Path(scratch, "env")
            self._program = str(
                lay_environment(folder, interpreter, [*packages, *interpreter.packages])
            )
            _activate(environment, str(folder / "bin"))
        assert self._workspace is not None
        return HostPlace(
            str(self._workspace.path), self._limits, with_whole_output(environment), delete
        )

    def _python(self) -> str | None:
        return None if self._virtual_env_context is None else str(self._virtual_env_context.env_exe)

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        return command_on_host(self._workspace, language, name, self._program)

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Say what holds without a sandbox: little. Blocks for some tenths of a second the first time."""
        return host_guarantees(probe(), self._limits)

    def _to_config(self) -> dict[str, Any]:
        return {**super()._to_config(), "env": self._env}


def _activate(environment: dict[str, str], programs: str) -> None:
    environment["PATH"] = os.pathsep.join([programs, environment.get("PATH") or os.defpath])
    environment["VIRTUAL_ENV"] = os.path.dirname(programs)
