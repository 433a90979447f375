"""The other side: a Jupyter kernel by `jupyter_client`, asked for one cell after another."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import subprocess
from collections.abc import AsyncGenerator
from typing import Any

from benchmarks.measure import NotMeasured
from benchmarks.processes import tree

_PATIENCE = 60.0  # seconds for one message; far more than a loaded machine needs


class Kernel:
    """An ipykernel of this interpreter that runs."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager, self._client = manager, client

    @classmethod
    async def started(cls) -> Kernel:
        """Start one, and wait until it takes cells."""
        # Of the extra `bench`, so that the other rows can be measured without.
        manager: Any = importlib.import_module("jupyter_client.manager").AsyncKernelManager(
            kernel_name="python3"
        )
        await manager.start_kernel(stderr=subprocess.DEVNULL)  # it warns of how it is reached
        client = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=_PATIENCE)
        return cls(manager, client)

    async def run(self, code: str) -> str:
        """Run `code` and give the value that it shows, once the kernel is idle again. Raises `RuntimeError` when it fails."""
        number, value = self._client.execute(code), ""
        while True:
            message = await self._client.get_iopub_msg(timeout=_PATIENCE)
            if message["parent_header"].get("msg_id") != number:
                continue
            if message["msg_type"] == "execute_result":
                value = message["content"]["data"]["text/plain"]
            elif message["msg_type"] == "error":
                raise RuntimeError(f"The kernel fails with {message['content']['evalue']}.")
            elif message["content"].get("execution_state") == "idle":
                break
        await self._client.get_shell_msg(timeout=_PATIENCE)
        return value

    def processes(self) -> list[int]:
        """Give its processes."""
        return tree(int(self._manager.provisioner.pid))

    async def stop(self) -> None:
        """End it."""
        self._client.stop_channels()
        await self._manager.shutdown_kernel(now=True)


@contextlib.asynccontextmanager
async def kernel() -> AsyncGenerator[Kernel]:
    """Give a kernel that runs, and end it."""
    need_kernels()
    started = await Kernel.started()
    try:
        yield started
    finally:
        await started.stop()


def need_kernels() -> None:
    """Raise `NotMeasured` where there are no kernels."""
    need("jupyter_client", "ipykernel")


def need(*modules: str) -> None:
    """Raise `NotMeasured` where one of `modules` is not installed."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise NotMeasured(f"{name} is not installed: the extra `bench` brings it.")
