"""Kernels on a Jupyter server, and the blocks in other languages that they run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from ...blocks import CodeBlock, action_for_block
from ...cancellation import Token
from ...errors import BackendError, FunctionError
from ...events import Ended, Event, Started
from ...languages import find_language
from ...source_text import source_to_run, with_named_program
from ..base import RunBlock, unknown_language
from .base import KernelSettings
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


class ServerKernels:
    """The kernels of an executor on a Jupyter server.

    Raise `ValueError` or `FunctionError` if the server cannot do what the settings ask for.
    """

    def __init__(
        self, server: JupyterConnectable | JupyterConnectionInfo, settings: KernelSettings
    ) -> None:
        if not isinstance(server, JupyterConnectionInfo) and not _is_connectable(server):
            raise ValueError(
                "jupyter_server must be a JupyterConnectable or JupyterConnectionInfo."
            )
        if settings.functions.packages:
            names = ", ".join(settings.functions.packages)
            raise FunctionError(
                f"Packages of functions cannot be installed on a Jupyter server: {names}. "
                "Install them on the server."
            )
        if other := [
            name
            for name, value in settings.limits.to_dict().items()
            if value is not None and name not in _ENFORCED_LIMITS
        ]:
            raise ValueError(
                f"A Jupyter server cannot enforce {', '.join(other)}. Set only "
                f"{' and '.join(_ENFORCED_LIMITS)}."
            )
        self.server, self._kernel_name = server, settings.kernel_name
        self._kernel_server = server if isinstance(server, KernelServer) else KernelServer()

    async def start(self) -> Kernel:
        """Start and return a kernel. Raise `BackendError` on failure, and leave nothing behind."""
        try:
            # Imported here because it needs an extra.
            from .remote_kernel import start_kernel
        except ImportError as error:
            raise BackendError(_MISSING) from error
        return await start_kernel(
            await self._connection_info(), self._kernel_name, self._kernel_server
        )

    async def _connection_info(self) -> JupyterConnectionInfo:
        server = self.server
        if isinstance(server, JupyterConnectionInfo):
            return server
        # In a thread, because this may start the server.
        return await asyncio.to_thread(lambda: server.connection_info)


async def run_other_language(
    run_in_kernel: RunBlock, number: int, block: CodeBlock, token: Token | None, *, is_python: bool
) -> AsyncGenerator[Event, None]:
    """Run a block whose language is not the kernel's. A Python kernel also runs shell blocks."""
    language = find_language(block.language)
    if language is not None and language.name in _SHELLS and is_python:
        code = source_to_run(block.code, block.language)
        program = with_named_program(language, code).argv or ()
        cell = CodeBlock(_cell_of_shell(program, code), block.language)
        async with contextlib.aclosing(run_in_kernel(number, cell, token)) as events:
            async for event in events:
                yield event
        return
    yield Started(number, block.language)
    if language is not None and action_for_block(block, language) == "ignore":
        yield Ended(number, 0, "ok")
    else:
        yield unknown_language(number, block)


def _cell_of_shell(argv: Sequence[str], code: str) -> str:
    """Return a cell of Python that runs `code` by `argv`, and ends with its exit code."""
    return f"exec({_RUN_SHELL!r}, {dict(argv=list(argv), source=code)!r})"


def _is_connectable(value: object) -> bool:
    # `isinstance` with the protocol would read the property, which may start a server.
    return hasattr(type(value), "connection_info") or "connection_info" in getattr(
        value, "__dict__", {}
    )
