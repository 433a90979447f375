"""HostPlace: run blocks as ordinary processes of this machine."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from ...backends.base import Backend
from ...backends.host import HostBackend
from ...backends.node_stdio import with_blocking_output
from ...blocks import CodeBlock
from ...environments.interpreter import create_environment
from ...environments.virtualenv import find_interpreter
from ...languages import Language
from ...runtime.handshake import CellJob
from ...sandbox.guarantees import Guarantee, host_guarantees
from ...sandbox.probe import is_in_memory, probe
from ..settings import Config, ExecutorSettings, to_config
from .base import Place
from .host_command import command_on_host
from .settings import PlaceSettings


@dataclass(frozen=True, kw_only=True)
class HostSettings(ExecutorSettings):
    """See `LocalCommandLineCodeExecutor`."""

    virtual_env_context: SimpleNamespace | None
    env: Mapping[str, str] | None = field(repr=False)


class HostPlace(Place):
    """See `LocalCommandLineCodeExecutor`."""

    def __init__(self, settings: PlaceSettings, host: HostSettings) -> None:
        super().__init__(settings)
        self._host = host
        self._block_python, self._path = "", ""

    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
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
        self._path = environment.get("PATH", os.defpath)
        return HostBackend(
            str(self.workspace.path),
            self.limits,
            with_blocking_output(environment),
            delete,
        )

    def _python_path(self) -> str | None:
        context = self._host.virtual_env_context
        return None if context is None else str(context.env_exe)

    def command(self, language: Language, name: str) -> CellJob:
        """See `Place`."""
        return command_on_host(self.workspace, language, name, self._block_python)

    def note_on(self, block: CodeBlock) -> str:
        """See `Place`. Say if a shell's `pip install` was not for the Python of the blocks."""
        found = _PIP.search(block.code) if block.language in ("sh", "bash", "shell") else None
        pip = shutil.which(found[1], path=self._path) if found else None
        if pip is None:
            return ""
        with open(pip, "rb") as file:
            line = file.readline(_MAX_FIRST_LINE).decode(errors="replace").strip()
        named = line.split()[-1].removeprefix("#!") if line.startswith("#!") else ""
        program = shutil.which(named, path=self._path) or named
        if not os.path.basename(program).startswith("python"):
            program = pip  # of the same folder as its Python
        if os.path.dirname(os.path.abspath(program)) == os.path.dirname(self._block_python):
            return ""
        python = self._block_python
        return f"pip serves {program}, and Python blocks run with {python}. Use {python} -m pip.\n"

    @property
    def seen_work_dir(self) -> str:
        """See `Place`."""
        return str(self.workspace.path)

    def guarantees(self) -> tuple[Guarantee, ...]:
        """See `Place`. Little is guaranteed without a sandbox."""
        in_memory = is_in_memory(self.settings.work_dir)
        return host_guarantees(probe(), self.limits, in_memory=in_memory)

    def to_config(self) -> Config:
        """See `Place`."""
        return {**super().to_config(), **to_config(self._host)}


# At the start of a command.
_PIP = re.compile(r"(?:^|[;&|(]|\bsudo)[ \t]*(pip3?)[ \t]+install\b", re.MULTILINE)
_MAX_FIRST_LINE = 4096


def _activate(environment: dict[str, str], programs: str) -> None:
    environment["PATH"] = os.pathsep.join([programs, environment.get("PATH") or os.defpath])
    environment["VIRTUAL_ENV"] = os.path.dirname(programs)
