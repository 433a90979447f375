"""DockerJupyterServer: a Jupyter kernel gateway in a container, reachable only on the loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ....components import Component
from ....containers import orphans
from ....containers.client import EngineClient, connect
from ....containers.container import Container, create_container, find_container
from ....containers.gateway.attach import AttachedStreams
from ....containers.gateway.dockerfile import DOCKERFILE
from ....containers.gateway.image import gateway_image
from ....containers.gateway.port_forward import PortForward
from ....containers.gateway.spec import GatewaySpec
from ....containers.guarantees import ContainerSettings, container_guarantees
from ....containers.images import OnPull, inspect_image
from ....errors import BackendError, ContainerEngineUnavailable, ImageUnavailable
from ....limits import GIB, LOCAL_LIMITS, Limits
from ....sandbox.guarantees import Guarantee
from ...argument_checks import check_limits
from ...settings import from_config, to_config
from ..connection_info import JupyterConnectionInfo
from ..inbox import KernelDied
from .base import ManagedJupyterServer

if TYPE_CHECKING:
    from ..rest_api import JupyterApi

SERVER_LIMITS = replace(
    LOCAL_LIMITS,
    memory_bytes=4 * GIB,
    processes=1024,
    open_files=4096,
    file_bytes=2 * GIB,
    tmp_bytes=1 * GIB,
)
_MISSING = (
    "Jupyter in containers needs aiohttp and aiodocker: pip install 'cellblock[docker,jupyter]'."
)
_BASE_IMAGE = "python:3-slim"
_START_SECONDS = 60.0  # until the gateway must respond
_ORPHAN_SECONDS = 10.0  # that removing orphans may delay a start
# How long a connection waits for the gateway to open its port. Less than the timeout of a request.
_CONNECT_SECONDS = 15.0
_READ_OOM_KILLS = (
    "cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null"
)


class DockerJupyterServer(ManagedJupyterServer, Component):
    """Run a Jupyter kernel gateway in a container until `stop` or the end of this process.

    custom_image_name  an image with Python whose command runs a kernel gateway on `expose_port`
                       with the token in `TOKEN` (also `JUPYTER_TOKEN` and `KG_AUTH_TOKEN`);
                       None: an image that is built on `base_image`
    base_image         any image with Python 3.10 or later; kernels can import its packages
    container_name     None: a new name at each start
    auto_remove        remove the container when it exits
    stop_container     stop the container on `stop` and when this process ends; False: it keeps
                       running, and `start` finds it by its name
    docker_env         environment variables for the container
    expose_port        port of the gateway in the container; a free port of 127.0.0.1 leads to it
    token              None: a new random token at each start. Not saved in configurations
    work_dir           current folder of the kernels, in the container
    bind_dir           folder of this machine to mount as `work_dir`; None: a temporary file system
    network            network of the kernels: "none", "bridge", or the name of a network of the
                       engine; the server can be reached without one
    user               "uid:gid"; None: the caller, so that files in `bind_dir` belong to the caller
    limits             limits of the server and all its kernels together
    runtime            a runtime of the engine, such as "runsc"
    create_kwargs      additional entries for the engine's request to create the container
    on_pull            called with a `PullProgress` while `base_image` is pulled; never saved

    The container has no capabilities and cannot gain any. With the built image, only `work_dir`,
    `/tmp` and the home can be written. The server starts on `with`, `async with`, `start()` or a
    read of `connection_info`, which raise `ContainerEngineUnavailable`, `ImageUnavailable`,
    `PackageError` or another `BackendError`.
    """

    component_type: ClassVar[str] = "jupyter_server"
    DEFAULT_DOCKERFILE: ClassVar[str] = DOCKERFILE.format(base=_BASE_IMAGE)
    """How the image is built on `base_image`: for reading, as AutoGen's users do."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "DEFAULT_DOCKERFILE" in vars(cls):
            raise TypeError(
                f"{cls.__name__}.DEFAULT_DOCKERFILE would not be built. Build the image yourself, "
                "and pass it as base_image=, or as custom_image_name= if it runs a gateway."
            )

    def __init__(
        self,
        *,
        custom_image_name: str | None = None,
        container_name: str | None = None,
        auto_remove: bool = True,
        stop_container: bool = True,
        docker_env: Mapping[str, str] | None = None,
        expose_port: int = 8888,
        token: str | None = None,
        work_dir: str = "/workspace",
        bind_dir: str | os.PathLike[str] | None = None,
        base_image: str = _BASE_IMAGE,
        network: str = "none",
        user: str | None = None,
        limits: Limits = SERVER_LIMITS,
        runtime: str | None = None,
        create_kwargs: Mapping[str, Any] | None = None,
        on_pull: OnPull | None = None,
    ) -> None:
        super().__init__()
        if token == "":
            raise ValueError(
                "token must not be empty: every user of this machine could use the server."
            )
        self._given_token, self._on_pull = token, on_pull
        self._spec = GatewaySpec(
            custom_image_name=custom_image_name,
            base_image=base_image,
            container_name=container_name,
            auto_remove=auto_remove,
            stop_container=stop_container,
            docker_env=dict(docker_env or {}),
            expose_port=expose_port,
            work_dir=work_dir,
            bind_dir=None if bind_dir is None else Path(bind_dir),
            network=network,
            user=user,
            limits=check_limits(limits, SERVER_LIMITS),
            runtime=runtime,
            create_kwargs=dict(create_kwargs or {}),
        )
        self._client: EngineClient | None = None
        self._container: Container | None = None
        self._streams: AttachedStreams | None = None
        self._port_forward: PortForward | None = None
        self._oom_kills = 0  # by the OOM killer in the container, as last counted

    @property
    def bind_dir(self) -> Path | None:
        """The folder of this machine that is mounted as the kernels' current folder."""
        return self._spec.bind_dir

    @property
    def container_name(self) -> str | None:
        """The name of the container; None if it is not running and no name was given."""
        return self._spec.container_name if self._container is None else self._container.name

    @property
    def limits(self) -> Limits:
        """The limits of the server and all its kernels together."""
        return self._spec.limits

    def guarantees(self) -> tuple[Guarantee, ...]:
        """Return what is guaranteed with these settings. More is known of a started server."""
        spec = self._spec
        settings = ContainerSettings(
            limits=spec.limits,
            network=spec.network,
            read_only=spec.custom_image_name is None,
            folders=() if spec.bind_dir is None else (str(spec.bind_dir),),
            variables=tuple(spec.docker_env),
            create_kwargs=spec.create_kwargs,
            runtime=spec.runtime,
            filters_blocks=False,
            client=self._client,
        )
        return container_guarantees(settings)

    # on the background loop

    def _is_alive(self) -> bool:
        return self._port_forward is not None and (
            self._streams is None or not self._streams.has_ended
        )

    async def _launch(self) -> JupyterConnectionInfo:
        try:
            # Imported here because it needs an extra.
            from ..rest_api import JupyterApi
        except ImportError as error:
            raise ContainerEngineUnavailable(_MISSING) from error
        self._client = await connect()
        with contextlib.suppress(TimeoutError):  # the next start removes them
            async with asyncio.timeout(_ORPHAN_SECONDS):
                await orphans.remove_orphans(self._client)
        token = self._given_token or secrets.token_hex(32)
        self._container = await self._start_container(self._client, token)
        self._port_forward = PortForward(self._container, self._spec.expose_port, _CONNECT_SECONDS)
        await self._port_forward.open()
        info = JupyterConnectionInfo("127.0.0.1", False, self._port_forward.port, token)
        api = JupyterApi(info)
        try:
            await self._wait_until_ready(api, token)
        finally:
            await api.close()
        return info

    async def _start_container(self, client: EngineClient, token: str) -> Container:
        """Return the running container: the one that was kept, or a new one."""
        spec = self._spec
        if not spec.stop_container and spec.container_name is not None:
            existing = await find_container(client, spec.container_name)
            if existing is not None and await existing.is_running():
                return existing
        container = await self._create_container(client, token)
        self._container = container  # `_shut_down` must remove it from here on
        if spec.stop_container:
            self._streams = AttachedStreams(container)
            await self._streams.open()
        await container.start()
        if self._streams is not None:
            try:
                await self._streams.start_lease()
            except BackendError:
                if await container.is_running():
                    raise
                # `_wait_until_ready` reports its last output, which says why it has ended.
        return container

    async def _create_container(self, client: EngineClient, token: str) -> Container:
        spec, self._oom_kills = self._spec, 0
        image = spec.custom_image_name or await gateway_image(
            client, spec.base_image, self._on_pull
        )
        image_info = await inspect_image(client, image)
        if image_info is None:
            raise ImageUnavailable(
                f"Custom image {image} does not exist. Pull it: docker pull {image}"
            )
        if spec.bind_dir is not None:
            await asyncio.to_thread(spec.bind_dir.mkdir, parents=True, exist_ok=True)
        container_spec = spec.container_spec(client, image, image_info, token)
        labels = orphans.owner_labels(kept=not (spec.auto_remove and spec.stop_container))
        name = spec.container_name or f"cellblock-jupyter-{uuid.uuid4()}"
        return await create_container(client, replace(container_spec, labels=labels), name)

    async def _wait_until_ready(self, api: JupyterApi, token: str) -> None:
        """Wait until the gateway responds. Raise `BackendError` if it does not in time."""
        from ..rest_api import AccessDenied

        last_error = "It did not respond."
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while self._is_alive():
                    try:
                        await api.list_kernel_specs()
                        return
                    except AccessDenied:
                        raise
                    except BackendError as error:
                        last_error = str(error)
                    await asyncio.sleep(0.1)
        output = "" if self._streams is None else self._streams.output_tail.replace(token, "***")
        raise BackendError(
            f"The Jupyter server in container {self.container_name} did not start: "
            f"{output or last_error}"
        )

    async def _shut_down(self) -> None:
        port_forward, self._port_forward = self._port_forward, None
        if port_forward is not None:
            await port_forward.close()
        container, self._container = self._container, None
        if container is not None and self._spec.stop_container:
            await (container.remove() if self._spec.auto_remove else container.stop())
        streams, self._streams = self._streams, None
        if streams is not None:
            await streams.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def death_reason(self) -> KernelDied:
        """Return the reason for the death of a kernel: out of memory, or unknown."""
        before = self._oom_kills
        with contextlib.suppress(BackendError, TimeoutError):
            async with asyncio.timeout(5):
                self._oom_kills = await self._count_oom_kills()
        if self._oom_kills == before:
            return KernelDied()
        message = f"\nOut of memory: the limit of {self.limits.memory_bytes} bytes (memory_bytes)."
        return KernelDied(outcome="out_of_memory", limit="memory_bytes", message=message)

    async def _count_oom_kills(self) -> int:
        """Return how many processes of the container the OOM killer has killed."""
        if self._container is None:
            return self._oom_kills
        _, output = await self._container.run_command(["/bin/sh", "-c", _READ_OOM_KILLS])
        counts = [
            int(value)
            for name, _, value in (line.partition(" ") for line in output.splitlines())
            if name == "oom_kill"
        ]
        return max(counts, default=self._oom_kills)

    # saved configurations

    def _to_config(self) -> dict[str, Any]:
        return to_config(self._spec)

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Self:
        return cls(**from_config(config))
