"""JupyterCodeExecutor: blocks in one live Jupyter kernel of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import warnings
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from ...backends.base import Connection, Place
from ...backends.host import HostPlace
from ...blocks import CodeBlock
from ...cancellation import Token
from ...environments.virtualenv import environment_for, site_packages
from ...errors import BackendError, BackendLost
from ...events import Event
from ...functions.module import Function
from ...languages import Language
from ...limits import LOCAL_LIMITS, Limits
from ...runtime.linux.rmtree import remove_tree
from ..command_line.base import CommandLineExecutor, command_on_host
from ..workspace.workspace import Workspace
from .base import KernelExecutor
from .kernel import LiveKernel
from .named_files import with_files

_MISSING = (
    "Jupyter kernels need jupyter_client, which is not installed: pip install 'cellblock[jupyter]'."
)


class JupyterCodeExecutor(KernelExecutor):
    """Run blocks in a live Jupyter kernel of this machine, of any language: no sandbox, the caller's own rights.

    work_dir      the kernel's current folder; `None`: the caller's, as it is at the start
    limits        those but `wall_seconds` and `output_bytes` hold for the kernel and all that it starts, over its whole life

    With a `work_dir`, the files that blocks make there are in the result, and a block that begins with `# filename: NAME` is
    saved there as well. A block in another language than the kernel's is run as a fresh process in the same folder, as by
    `LocalCommandLineCodeExecutor`; what `sh` blocks call `python` and `pip` are those of the kernel. For the other parameters
    see `KernelExecutor`.
    """

    def __init__(
        self,
        kernel_name: str = "python3",
        timeout: float = 60,
        output_dir: str | os.PathLike[str] | None = None,
        *,
        work_dir: str | os.PathLike[str] | None = None,
        functions: Sequence[Function] = (),
        functions_module: str = "functions",
        limits: Limits = LOCAL_LIMITS,
        save_output: bool = False,
    ) -> None:
        if output_dir == ".":
            warnings.warn(
                "Using the current directory as output_dir is deprecated",
                DeprecationWarning,
                stacklevel=2,
            )
        super().__init__(
            kernel_name,
            timeout,
            output_dir,
            functions=functions,
            functions_module=functions_module,
            limits=limits,
            save_output=save_output,
        )
        self._given_work_dir = None if work_dir is None else Path(work_dir)
        if self._given_work_dir is not None:
            self._given_work_dir.mkdir(parents=True, exist_ok=True)
        self._beside: _Beside | None = None
        self._folder: Path | None = None

    @property
    def work_dir(self) -> Path:
        """The kernel's current folder at its start."""
        return self._given_work_dir or Path.cwd()

    async def _open(self) -> None:
        beside = _Beside(self._timeout, self.work_dir, self._limits)
        self._folder = Path(tempfile.mkdtemp(prefix="cellblock-kernel-"))
        beside.delete = [str(self._folder)]
        if self._given_output_dir is None:
            beside.delete.append(str(self.output_dir))
        try:
            await beside.start()
            self._beside = beside
            await super()._open()
        except BaseException:
            await self._close(restarting=True)
            raise

    async def _close(self, *, restarting: bool) -> None:
        await super()._close(restarting=restarting)
        beside, self._beside = self._beside, None
        if beside is not None:
            await beside.end(
                keep=[str(self._temporary)] if restarting and self._temporary is not None else []
            )
        folder, self._folder = self._folder, None
        if folder is not None:
            await asyncio.to_thread(remove_tree, str(folder))

    async def _make_kernel(self) -> LiveKernel:
        try:
            # An extra: without it the rest of the library works.
            from .local_kernel import start_kernel
        except ImportError as error:
            raise BackendError(_MISSING) from error
        if self._beside is None or self._folder is None:
            raise BackendLost("The executor was stopped.")
        kernel = await start_kernel(
            self._kernel_name,
            self._beside.connection,
            self._limits,
            self._beside.work_dir,
            self._folder,
        )
        self._beside.program = kernel.program
        return kernel

    async def _package_folders(self, kernel: LiveKernel) -> list[str]:
        if not self._module.packages or self._beside is None:
            return []
        environment = await environment_for(
            self._module.packages, python=self._beside.program or None
        )
        return [str(site_packages(environment))]

    async def _run_here(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        workspace = (
            None if self._given_work_dir is None or self._beside is None else self._beside.workspace
        )
        run = super()._run_here
        async with contextlib.aclosing(
            with_files(workspace, number, block, lambda: run(number, block, token))
        ) as events:
            async for event in events:
                yield event

    def _run_other(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        if self._beside is None:
            raise BackendLost("The executor was stopped.")
        return self._beside.run(number, block, token)

    def _save_folder(self) -> Path:
        return self.work_dir

    def _to_config(self) -> dict[str, Any]:
        given = self._given_work_dir
        return {**super()._to_config(), "work_dir": None if given is None else str(given)}


class _Beside(CommandLineExecutor):
    """What runs beside the kernel: blocks in other languages, as fresh processes; and it is where the kernel has its cell.

    delete    what is removed when it ends, even if its owner was killed
    program   the program of the kernel, as an absolute path; its folder comes first on the `PATH` of the blocks
    """

    def __init__(self, timeout: float, work_dir: Path, limits: Limits) -> None:
        super().__init__(
            timeout,
            work_dir,
            (),
            "functions",
            True,
            packages=(),
            limits=limits,
            execution_policies=None,
            save_output=False,
        )
        self.delete: list[str] = []
        self.program = ""

    @property
    def connection(self) -> Connection:
        """The open place."""
        assert self._connection is not None
        return self._connection

    @property
    def workspace(self) -> Workspace:
        """The folder, as it was at the start."""
        assert self._workspace is not None
        return self._workspace

    def run(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        """Run one block."""
        return self._run_block(number, block, token)

    async def end(self, keep: Sequence[str]) -> None:
        """End it; `keep` names what is not to be removed."""
        if self._connection is not None:
            await self._connection.close(keep=keep)

    async def _make_place(self, packages: tuple[str, ...], delete: list[str]) -> Place:
        return HostPlace(
            str(self.workspace.path), self._limits, dict(os.environ), [*delete, *self.delete]
        )

    def _command(self, language: Language, name: str) -> dict[str, Any]:
        import sys

        command = command_on_host(self._workspace, language, name, self.program or sys.executable)
        if self.program:
            command["env"] = {
                "PATH": os.pathsep.join(
                    [os.path.dirname(self.program), os.environ.get("PATH") or os.defpath]
                )
            }
        return command
