"""DockerJupyterCodeExecutor: run blocks in a kernel on a Jupyter server in a container."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from ...blocks import CodeBlock
from ...cancellation import Token
from ...errors import ComponentError
from ...events import Event
from ...functions.module import Function
from ...limits import LOCAL_LIMITS, Limits
from ...sandbox.guarantees import Guarantee
from ..settings import Config
from ..workspace.workspace import Workspace
from .base import KernelExecutor
from .connection_info import JupyterConnectable, JupyterConnectionInfo
from .kernel import Kernel
from .named_files import run_with_files
from .server_kernels import ServerKernels, run_other_language
from .servers.docker import DockerJupyterServer


class DockerJupyterCodeExecutor(KernelExecutor):
    """Run blocks in a kernel in a container, usually on a `DockerJupyterServer`.

    output_dir    folder for the images and HTML pages that blocks display; None: the server's
                  `bind_dir`, or a temporary folder that `stop` removes if there is no `bind_dir`

    With a `bind_dir`, the result lists the files that blocks create there, and a block that begins
    with `# filename: NAME` is also saved there. An executor that was loaded from a saved
    configuration owns its server, and stops it on `stop`. For the rest see
    `JupyterServerCodeExecutor`.
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
        self._docker_server = (
            jupyter_server if isinstance(jupyter_server, DockerJupyterServer) else None
        )
        self._owns_server = False
        self._workspace: Workspace | None = None

    @property
    def output_dir(self) -> Path:
        """The folder for images and HTML pages."""
        return (
            super().output_dir
            if self._settings.output_dir is not None
            else self.work_dir or super().output_dir
        )

    @property
    def work_dir(self) -> Path | None:
        """The server's `bind_dir`: the kernel's current folder, as seen on this machine."""
        return None if self._docker_server is None else self._docker_server.bind_dir

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what its `DockerJupyterServer` guarantees; nothing if it has another server."""
        return () if self._docker_server is None else self._docker_server.guarantees()

    async def _open(self) -> None:
        await super()._open()
        folder = self.work_dir
        self._workspace = None if folder is None else Workspace(folder)

    async def _close(self, *, restarting: bool) -> None:
        await super()._close(restarting=restarting)
        if self._owns_server and self._docker_server is not None and not restarting:
            # On the background loop, as this method is.
            await self._docker_server._stop()  # pyright: ignore[reportPrivateUsage]

    async def _run_in_kernel(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        run = super()._run_in_kernel
        async with contextlib.aclosing(
            run_with_files(self._workspace, number, block, lambda: run(number, block, token))
        ) as events:
            async for event in events:
                yield event

    async def _start_kernel(self) -> Kernel:
        return await self._kernels.start()

    def _run_other_language(
        self, number: int, block: CodeBlock, token: Token | None
    ) -> AsyncGenerator[Event, None]:
        is_python = self._kernel_runs("python")
        return run_other_language(self._run_in_kernel, number, block, token, is_python=is_python)

    def _saved_output_folder(self) -> Path:
        return self.output_dir

    def _shared_folder(self) -> Path | None:
        return None if self.work_dir is None else self.work_dir.absolute()

    # saved configurations

    def _to_config(self) -> Config:
        server = self._kernels.server
        if isinstance(server, DockerJupyterServer):
            saved = server.dump_component().to_dict()
        elif isinstance(server, JupyterConnectionInfo) and server.token is None:
            saved = {"host": server.host, "use_https": server.use_https, "port": server.port}
        else:
            raise ComponentError(
                "A DockerJupyterCodeExecutor can be saved only with a DockerJupyterServer or a "
                "JupyterConnectionInfo without a token, because secrets are not saved."
            )
        return {"jupyter_server": saved, **super()._to_config()}

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Self:
        values = dict(config)
        saved: object = values.get("jupyter_server")
        if not isinstance(saved, Mapping):
            raise ComponentError(
                "'jupyter_server' of a DockerJupyterCodeExecutor must be an object, "
                f"not {saved!r:.200}."
            )
        server = cast("Mapping[str, Any]", saved)
        if "host" in server:
            values["jupyter_server"] = JupyterConnectionInfo(**server)
            return super()._from_config(values)
        values["jupyter_server"] = DockerJupyterServer.load_component(server)
        executor = super()._from_config(values)
        executor._owns_server = True
        return executor
