"""JupyterCodeExecutor: run blocks in a Jupyter kernel on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...backends.base import Backend
from ...backends.host import HostBackend
from ...blocks import CodeBlock
from ...cancellation import Token
from ...environments.virtualenv import environment_for, site_packages
from ...errors import BackendError, ExecutorStopped
from ...events import Event
from ...functions.module import Function
from ...languages import Language
from ...limits import LOCAL_LIMITS, Limits
from ...runtime.handshake import CellJob
from ...runtime.linux.safe_folder import remove_tree
from ..argument_checks import check_folder, create_folder
from ..command_line.fresh_process import run_block
from ..places.host import HostPlace, HostSettings
from ..places.host_command import command_on_host
from ..places.settings import PlaceSettings
from ..run_options import RunOptions
from ..settings import Config, ExecutorSettings, to_config
from .base import KernelExecutor
from .kernel import Kernel
from .named_files import run_with_files

_MISSING = (
    "Jupyter kernels need jupyter_client, which is not installed: pip install 'cellblock[jupyter]'."
)


@dataclass(frozen=True, kw_only=True)
class LocalKernelSettings(ExecutorSettings):
    """See `JupyterCodeExecutor`."""

    work_dir: Path | None


class JupyterCodeExecutor(KernelExecutor):
    """Run blocks in a Jupyter kernel of any language on this machine, unsandboxed, as the caller.

    work_dir      current folder of the kernel; None: the caller's current folder at the start
    limits        `wall_seconds` and `output_bytes` apply to each block, all others to the kernel
                  and its descendants over their whole life

    With a `work_dir`, the result lists the files that blocks create there, and a block that begins
    with `# filename: NAME` is also saved there. A block in another language is run as a fresh
    process in the same folder, as `LocalCommandLineCodeExecutor` does; in `sh` blocks, `python` and
    `pip` are those of the kernel. For the other parameters see `KernelExecutor`.
    """

    def __init__(
        self,
        kernel_name: str = "python3",
        timeout: float | None = 60,
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
        self._local = LocalKernelSettings(work_dir=check_folder("work_dir", work_dir))
        if self._local.work_dir is not None:
            create_folder("work_dir", self._local.work_dir)
        self._place: KernelPlace | None = None
        self._connection_folder: Path | None = None

    @property
    def work_dir(self) -> Path:
        """The current folder of the kernel at its start."""
        return self._local.work_dir or Path.cwd()

    async def _open(self) -> None:
        self._connection_folder = Path(tempfile.mkdtemp(prefix="cellblock-kernel-"))
        delete = [str(self._connection_folder)]
        if self._settings.output_dir is None:
            delete.append(str(self.output_dir))
        place = KernelPlace(self.timeout, self.work_dir, self.limits, delete)
        try:
            await place.open()
            self._place = place
            await super()._open()
        except BaseException:
            await self._close(restarting=True)
            raise

    async def _close(self, *, restarting: bool) -> None:
        await super()._close(restarting=restarting)
        place, self._place = self._place, None
        if place is not None:
            keep = [self._temporary_output_dir] if restarting else []
            paths = [str(path) for path in keep if path is not None]
            await place.require_connection().close(keep=paths)
        folder, self._connection_folder = self._connection_folder, None
        if folder is not None:
            await asyncio.to_thread(remove_tree, str(folder))

    async def _start_kernel(self) -> Kernel:
        try:
            # Imported here because it needs an extra.
            from .local_kernel import start_kernel
        except ImportError as error:
            raise BackendError(_MISSING) from error
        if self._place is None or self._connection_folder is None:
            raise ExecutorStopped("The executor was stopped.")
        kernel = await start_kernel(
            self.kernel_name,
            self._place.require_connection(),
            self.limits,
            self._place.work_dir,
            self._connection_folder,
        )
        self._place.kernel_program = kernel.program
        return kernel

    async def _package_folders(self, kernel: Kernel) -> list[str]:
        if not self._settings.functions.packages or self._place is None:
            return []
        environment = await environment_for(
            self._settings.functions.packages, python=self._place.kernel_program or None
        )
        return [str(site_packages(environment))]

    async def _run_in_kernel(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        workspace = (
            None if self._local.work_dir is None or self._place is None else self._place.workspace
        )
        run = super()._run_in_kernel
        async with contextlib.aclosing(
            run_with_files(workspace, number, block, lambda: run(number, block, token))
        ) as events:
            async for event in events:
                yield event

    def _run_other_language(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        if self._place is None:
            raise ExecutorStopped("The executor was stopped.")
        return run_block(self._place, number, block, token, RunOptions())

    def _saved_output_folder(self) -> Path:
        return self.work_dir

    def _to_config(self) -> Config:
        return {**super()._to_config(), **to_config(self._local)}


class KernelPlace(HostPlace):
    """The work folder of a kernel, which is a cell of the same connection.

    kernel_program   absolute path of the kernel's program; its folder is first on `PATH`
    """

    kernel_program = ""

    def __init__(
        self,
        timeout: float | None,
        work_dir: Path,
        limits: Limits,
        delete_on_close: Sequence[str],
    ) -> None:
        settings = PlaceSettings.checked(
            timeout,
            work_dir,
            (),
            "functions",
            True,
            packages=(),
            limits=limits,
            execution_policies=None,
            save_output=False,
            default_limits=LOCAL_LIMITS,
        )
        super().__init__(settings, HostSettings(virtual_env_context=None, env=None))
        self._delete_on_close = delete_on_close

    async def _make_backend(self, packages: tuple[str, ...], delete: list[str]) -> Backend:
        paths = [*delete, *self._delete_on_close]  # removed even if this process is killed
        return HostBackend(str(self.workspace.path), self.limits, dict(os.environ), paths)

    def command(self, language: Language, name: str) -> CellJob:
        """See `Place`."""
        program = self.kernel_program or sys.executable
        command = command_on_host(self.workspace, language, name, program)
        if self.kernel_program:
            folder, path = os.path.dirname(self.kernel_program), os.environ.get("PATH")
            environment = {"PATH": os.pathsep.join([folder, path or os.defpath])}
            return command._replace(env=environment)
        return command
