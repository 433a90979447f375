"""JupyterServerCodeExecutor: blocks in one live kernel of a Jupyter server, by its address and token."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from ...blocks import CodeBlock, action_on
from ...cancellation import Token
from ...errors import BackendError, FunctionError
from ...events import Ended, Event, Started
from ...functions.module import Function
from ...languages import find_language
from ...limits import LOCAL_LIMITS, Limits
from .base import KernelExecutor
from .connection_info import JupyterConnectable, JupyterConnectionInfo
from .kernel import LiveKernel, Server

_MISSING = "Jupyter servers need aiohttp, which is not installed: pip install 'cellblock[jupyter]'."
_OURS = ("wall_seconds", "output_bytes")


class JupyterServerCodeExecutor(KernelExecutor):
    """Run blocks in a live kernel on a Jupyter server: with the rights, files and packages that it has there.

    jupyter_server   where it is: a `JupyterConnectionInfo`, or something with a `connection_info`, as `LocalJupyterServer`

    The kernel is started for this executor and ended with it. When the connection drops while the kernel lives, it is made
    again, and nothing is lost. Blocks in another language than the kernel's are not run: `unknown language`. The limits
    `wall_seconds` and `output_bytes` alone can be held from here. For the other parameters see `KernelExecutor`.
    """

    def __init__(
        self,
        jupyter_server: JupyterConnectable | JupyterConnectionInfo,
        kernel_name: str = "python3",
        timeout: float = 60,
        output_dir: str | os.PathLike[str] | None = None,
        *,
        functions: Sequence[Function] = (),
        functions_module: str = "functions",
        limits: Limits = LOCAL_LIMITS,
        save_output: bool = False,
    ) -> None:
        if not isinstance(jupyter_server, JupyterConnectionInfo) and not _is_connectable(
            jupyter_server
        ):
            raise ValueError(
                "jupyter_server must be a JupyterConnectable or JupyterConnectionInfo."
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
        if self._module.packages:
            names = ", ".join(self._module.packages)
            raise FunctionError(
                f"Packages cannot be installed on a Jupyter server from here: {names}. Install them there."
            )
        if other := [
            name
            for name, value in limits.to_dict().items()
            if value is not None and name not in _OURS
        ]:
            raise ValueError(
                f"A Jupyter server cannot be held to {', '.join(other)}: only to {' and '.join(_OURS)}."
            )
        self._jupyter_server = jupyter_server
        self._server = jupyter_server if isinstance(jupyter_server, Server) else Server()

    async def _make_kernel(self) -> LiveKernel:
        try:
            # An extra: without it the rest of the library works.
            from .remote_kernel import start_kernel
        except ImportError as error:
            raise BackendError(_MISSING) from error
        return await start_kernel(await self._where(), self._kernel_name, self._server)

    async def _where(self) -> JupyterConnectionInfo:
        server = self._jupyter_server
        if isinstance(server, JupyterConnectionInfo):
            return server
        # To say where it is, it may have to be started first.
        return await asyncio.to_thread(lambda: server.connection_info)

    async def _run_other(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        yield Started(number, block.language)
        language = find_language(block.language)
        if language is not None and action_on(block, language) == "ignore":
            yield Ended(number, 0, "ok")
        else:
            yield Ended(number, 1, "error", message=f"unknown language {block.language}")

    def _save_folder(self) -> Path:
        return self.output_dir


def _is_connectable(value: object) -> bool:
    # Not isinstance with the protocol: that would read the property, and start a server.
    return hasattr(type(value), "connection_info") or "connection_info" in getattr(
        value, "__dict__", {}
    )
