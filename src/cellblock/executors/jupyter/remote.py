"""JupyterServerCodeExecutor: run blocks in a kernel on a Jupyter server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from ...blocks import CodeBlock, action_for_block
from ...cancellation import Token
from ...errors import BackendError, FunctionError
from ...events import Ended, Event, Started
from ...functions.module import Function
from ...languages import find_language
from ...limits import LOCAL_LIMITS, Limits
from ...source_text import source_to_run, with_named_program
from .base import KernelExecutor
from .connection_info import JupyterConnectable, JupyterConnectionInfo
from .kernel import Kernel, KernelServer

_MISSING = "Jupyter servers need aiohttp, which is not installed: pip install 'cellblock[jupyter]'."
_SHELLS = ("sh", "bash")
# The first program says if the second is missing.
_RUN_SHELL = """
import subprocess, sys, tempfile
if argv[0].startswith("python"):
    argv[0] = sys.executable
with tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8", errors="replace") as file:
    file.write(source)
    file.flush()
    run = ["sh", "-c", 'exec "$0" "$@"', *argv, file.name]
    code = subprocess.run(run, stdin=subprocess.DEVNULL).returncode
if code:
    sys.exit(code if code > 0 else 128 - code)
"""
_ENFORCED_LIMITS = ("wall_seconds", "output_bytes")


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
        if self._settings.functions.packages:
            names = ", ".join(self._settings.functions.packages)
            raise FunctionError(
                f"Packages of functions cannot be installed on a Jupyter server: {names}. "
                "Install them on the server."
            )
        if other := [
            name
            for name, value in limits.to_dict().items()
            if value is not None and name not in _ENFORCED_LIMITS
        ]:
            raise ValueError(
                f"A Jupyter server cannot enforce {', '.join(other)}. Set only "
                f"{' and '.join(_ENFORCED_LIMITS)}."
            )
        self._jupyter_server = jupyter_server
        self._kernel_server = (
            jupyter_server if isinstance(jupyter_server, KernelServer) else KernelServer()
        )

    async def _start_kernel(self) -> Kernel:
        try:
            # Imported here because it needs an extra.
            from .remote_kernel import start_kernel
        except ImportError as error:
            raise BackendError(_MISSING) from error
        return await start_kernel(
            await self._connection_info(), self.kernel_name, self._kernel_server
        )

    async def _connection_info(self) -> JupyterConnectionInfo:
        server = self._jupyter_server
        if isinstance(server, JupyterConnectionInfo):
            return server
        # In a thread, because this may start the server.
        return await asyncio.to_thread(lambda: server.connection_info)

    async def _run_other_language(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        language = find_language(block.language)
        if language is not None and language.name in _SHELLS and self._kernel_runs("python"):
            code = source_to_run(block.code, block.language)
            program = with_named_program(language, code).argv or ()
            cell = CodeBlock(_cell_of_shell(program, code), block.language)
            async with contextlib.aclosing(self._run_in_kernel(number, cell, token)) as events:
                async for event in events:
                    yield event
            return
        yield Started(number, block.language)
        if language is not None and action_for_block(block, language) == "ignore":
            yield Ended(number, 0, "ok")
        else:
            yield Ended(number, 1, "error", message=f"unknown language {block.language}")

    def _saved_output_folder(self) -> Path:
        return self.output_dir


def _cell_of_shell(argv: Sequence[str], code: str) -> str:
    """Return a cell of Python that runs `code` by `argv`, and ends with its exit code."""
    return f"exec({_RUN_SHELL!r}, {dict(argv=list(argv), source=code)!r})"


def _is_connectable(value: object) -> bool:
    # `isinstance` with the protocol would read the property, which may start a server.
    return hasattr(type(value), "connection_info") or "connection_info" in getattr(
        value, "__dict__", {}
    )
