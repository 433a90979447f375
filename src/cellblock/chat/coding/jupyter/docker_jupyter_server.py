"""DockerJupyterServer: a Jupyter kernel gateway in a container, with AutoGen 0.2's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....executors.jupyter.servers.docker import DockerJupyterServer as OurServer
from .generated_token import GenerateToken, Token, to_token


class DockerJupyterServer(OurServer):
    """Run a Jupyter kernel gateway in a container, which is started here, until `stop`.

    The kernels have the network of the engine. `token` may be a `GenerateToken` for a random one.
    `options` and the other parameters are those of `cellblock.DockerJupyterServer`. Raise
    `ContainerEngineUnavailable`, `ImageUnavailable` or another `BackendError`.
    """

    GenerateToken = GenerateToken

    def __init__(
        self,
        *,
        custom_image_name: str | None = None,
        container_name: str | None = None,
        auto_remove: bool = True,
        stop_container: bool = True,
        docker_env: Mapping[str, str] | None = None,
        token: Token = None,
        network: str = "bridge",
        **options: Any,
    ) -> None:
        super().__init__(
            custom_image_name=custom_image_name,
            container_name=container_name,
            auto_remove=auto_remove,
            stop_container=stop_container,
            docker_env=docker_env,
            token=to_token(token),
            network=network,
            **options,
        )
        self.start()
