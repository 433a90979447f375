"""Kernels in containers as the contract's checks make executors: one container for nearly all of them."""

from __future__ import annotations

import functools
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from cellblock import DockerJupyterCodeExecutor, DockerJupyterServer, Limits
from cellblock.executors.jupyter.kernel import LiveKernel
from cellblock.executors.jupyter.request import Conversation
from cellblock.limits import LOCAL_LIMITS
from tests.containers import docker_engine as engines

_OF_A_BLOCK = ("wall_seconds", "output_bytes")


def serve(limits: Limits | None = None) -> DockerJupyterServer:
    """Give a server whose kernels see the folder for temporary files under its own name."""
    folder = tempfile.gettempdir()
    options: dict[str, Any] = {} if limits is None else {"limits": limits}
    return DockerJupyterServer(
        base_image=engines.running().image("python"), bind_dir=folder, work_dir=folder, **options
    )


@functools.cache
def shared() -> DockerJupyterServer:
    """Give the server for all."""
    return serve()


class InContainer(DockerJupyterCodeExecutor):
    """A kernel in a container, made as executors of this machine are. What a container is held to needs one of its own."""

    def __init__(
        self,
        work_dir: str | Path | None = None,
        timeout: float = 60,
        limits: Limits = LOCAL_LIMITS,
        **options: Any,
    ) -> None:
        values = limits.to_dict()
        own = {name: value for name, value in values.items() if name in _OF_A_BLOCK}
        held = {
            name: value
            for name, value in values.items()
            if name not in _OF_A_BLOCK and value is not None
        }
        server = serve(Limits(**held)) if held else shared()
        super().__init__(server, timeout=timeout, limits=Limits(**own), **options)
        self._owns_server = bool(held)
        self._folder = Path(work_dir or tempfile.mkdtemp(prefix="cellblock-work-"))
        if work_dir is None:
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    @property
    def work_dir(self) -> Path:
        return self._folder

    async def _ready_kernel(self) -> LiveKernel:
        kernel = await super()._ready_kernel()
        async for _ in Conversation(kernel, 0).events(
            f"__import__('os').chdir({str(self._folder)!r})", 10, None
        ):
            pass
        return kernel
