"""Kernels in containers, for the conformance checks: nearly all of them share one container."""

from __future__ import annotations

import functools
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from cellblock import DockerJupyterCodeExecutor, DockerJupyterServer, Limits
from cellblock.executors.jupyter.kernel import Kernel
from cellblock.executors.jupyter.request import KernelRequest
from cellblock.limits import LOCAL_LIMITS
from tests.containers import docker_engine as engines

_BLOCK_LIMITS = ("wall_seconds", "output_bytes")


def make_server(limits: Limits | None = None) -> DockerJupyterServer:
    """Return a server in whose container the temporary folder has the same path as outside."""
    folder = tempfile.gettempdir()
    options: dict[str, Any] = {} if limits is None else {"limits": limits}
    return DockerJupyterServer(
        base_image=engines.shared_engine().test_image("python"),
        bind_dir=folder,
        work_dir=folder,
        **options,
    )


@functools.cache
def shared_server() -> DockerJupyterServer:
    """Return the server that the checks share."""
    return make_server()


class ContainerKernelExecutor(DockerJupyterCodeExecutor):
    """A kernel in a container, with the parameters of an executor on this machine.

    A limit of a container needs a server of its own.
    """

    def __init__(
        self,
        work_dir: str | Path | None = None,
        timeout: float = 60,
        limits: Limits = LOCAL_LIMITS,
        **options: Any,
    ) -> None:
        values = limits.to_dict()
        of_block = {name: value for name, value in values.items() if name in _BLOCK_LIMITS}
        of_container = {
            name: value
            for name, value in values.items()
            if name not in _BLOCK_LIMITS and value is not None
        }
        server = make_server(Limits(**of_container)) if of_container else shared_server()
        super().__init__(server, timeout=timeout, limits=Limits(**of_block), **options)
        self._owns_server = bool(of_container)
        self._folder = Path(work_dir or tempfile.mkdtemp(prefix="cellblock-work-"))
        if work_dir is None:
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    @property
    def work_dir(self) -> Path:
        return self._folder

    async def _start_and_prepare_kernel(self) -> Kernel:
        kernel = await super()._start_and_prepare_kernel()
        async for _ in KernelRequest(kernel, 0).run(
            f"__import__('os').chdir({str(self._folder)!r})", 10, None
        ):
            pass
        return kernel
