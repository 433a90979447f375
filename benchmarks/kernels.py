"""A Jupyter kernel, run by `jupyter_client`, to compare live sessions with."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import subprocess
from collections.abc import AsyncGenerator
from typing import Any

from benchmarks.measure import NotMeasured
from benchmarks.processes import process_tree

_MESSAGE_TIMEOUT = 60.0  # seconds; much more than a loaded machine needs


class Kernel:
    """A running ipykernel of this interpreter."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager, self._client = manager, client

    @classmethod
    async def start(cls) -> Kernel:
        """Start a kernel and wait until it is ready."""
        # Imported here: the other rows can be measured without the extra `bench`.
        manager: Any = importlib.import_module("jupyter_client.manager").AsyncKernelManager(
            kernel_name="python3"
        )
        await manager.start_kernel(stderr=subprocess.DEVNULL)  # hides a warning about transports
        client = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=_MESSAGE_TIMEOUT)
        return cls(manager, client)

    async def run(self, code: str) -> str:
        """Run `code`, wait until the kernel is idle, and return the displayed value.

        Raise `RuntimeError` if the code fails.
        """
        number, value = self._client.execute(code), ""
        while True:
            message = await self._client.get_iopub_msg(timeout=_MESSAGE_TIMEOUT)
            if message["parent_header"].get("msg_id") != number:
                continue
            if message["msg_type"] == "execute_result":
                value = message["content"]["data"]["text/plain"]
            elif message["msg_type"] == "error":
                raise RuntimeError(f"The code failed with {message['content']['evalue']}.")
            elif message["content"].get("execution_state") == "idle":
                break
        await self._client.get_shell_msg(timeout=_MESSAGE_TIMEOUT)
        return value

    def processes(self) -> list[int]:
        """Return the process IDs of the kernel and its children."""
        return process_tree(int(self._manager.provisioner.pid))

    async def stop(self) -> None:
        """Stop the kernel."""
        self._client.stop_channels()
        await self._manager.shutdown_kernel(now=True)


@contextlib.asynccontextmanager
async def running_kernel() -> AsyncGenerator[Kernel]:
    """Yield a running kernel and stop it on exit."""
    require_kernels()
    started = await Kernel.start()
    try:
        yield started
    finally:
        await started.stop()


def require_kernels() -> None:
    """Raise `NotMeasured` if no kernel can be started here."""
    require_modules("jupyter_client", "ipykernel")


def require_modules(*modules: str) -> None:
    """Raise `NotMeasured` if one of `modules` is not installed."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise NotMeasured(f"{name} is not installed: install the extra `bench`.")
