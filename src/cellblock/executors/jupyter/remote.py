"""JupyterServerCodeExecutor: run blocks in a kernel on a Jupyter server."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from ...blocks import CodeBlock
from ...cancellation import Token
from ...events import Event
from ...functions.module import Function
from ...limits import LOCAL_LIMITS, Limits
from .base import KernelExecutor
from .connection_info import JupyterConnectable, JupyterConnectionInfo
from .kernel import Kernel
from .server_kernels import ServerKernels, run_other_language


class JupyterServerCodeExecutor(KernelExecutor):
    """Run blocks in a kernel on a Jupyter server, with the server's privileges, files and packages.

    jupyter_server   a `JupyterConnectionInfo`, or an object with a `connection_info`, such as
                     `LocalJupyterServer`

    The kernel is started for this executor and deleted when it stops. A connection that is lost
    while the kernel runs is restored. A Python kernel also runs `sh` and `bash` blocks, each as a
    process. The output of a block in another language is `unknown language NAME`. Only the limits
    `wall_seconds` and `output_bytes` can be enforced. For the other parameters see
    `KernelExecutor`.
    """

    def __init__(
        self,
        jupyter_server: JupyterConnectable | JupyterConnectionInfo,
        kernel_name: str = "python3",
        timeout: float | None = 60,
        output_dir: str | os.PathLike[str] | None = None,
        *,
        functions: Sequence[Function] = (),
        functions_module: str = "functions",
        limits: Limits = LOCAL_LIMITS,
        save_output: bool = False,
    ) -> None:
        super().__init__(
            kernel_name,
            timeout,
            output_dir,
            functions=functions,
            functions_module=functions_module,
            limits=limits,
            save_output=save_output,
        )
        self._kernels = ServerKernels(jupyter_server, self._settings)

    async def _start_kernel(self) -> Kernel:
        return await self._kernels.start()

    def _run_other_language(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        is_python = self._kernel_runs("python")
        return run_other_language(self._run_in_kernel, number, block, token, is_python=is_python)

    def _saved_output_folder(self) -> Path:
        return self.output_dir
