"""DockerJupyterServer: a Jupyter kernel gateway in a container, reachable from this machine's loopback alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ....components import Component
from ....containers import orphans
from ....containers.client import Client, connect
from ....containers.container import Container, create, find
from ....containers.gateway.attach import Attachment
from ....containers.gateway.image import gateway_image
from ....containers.gateway.port_forward import Relay
from ....containers.gateway.spec import GatewaySettings
from ....containers.images import OnPull, image_facts
from ....errors import BackendError, ContainerEngineUnavailable, ImageUnavailable
from ....limits import GIB, Limits
from ..connection_info import JupyterConnectionInfo
from ..kernel import Death
from .base import OwnJupyterServer

if TYPE_CHECKING:
    from ..rest_api import JupyterApi

SERVER_LIMITS = Limits(
    memory_bytes=4 * GIB, processes=1024, open_files=4096, file_bytes=2 * GIB, tmp_bytes=1 * GIB
)
_MISSING = (
    "Jupyter in containers needs aiohttp and aiodocker: pip install 'cellblock[docker,jupyter]'."
)
_PATIENCE = 60.0  # seconds that the gateway may take to answer
_ORPHANS = 10.0  # seconds that the removal of others' leftovers may hold up a start
_CONNECT = 15.0  # seconds that one connection waits for the gateway to open its port; less than a request may take
_KILLS = "cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2>/dev/null"


class DockerJupyterServer(OwnJupyterServer, Component):
    """Run a Jupyter kernel gateway in a container, for as long as this object, or its process, wants it.

    custom_image_name  an image whose command runs a kernel gateway on `expose_port`, with the token that `TOKEN` holds (and
                       `JUPYTER_TOKEN`, `KG_AUTH_TOKEN`); it needs Python. `None`: one of ours, built over `base_image`
    base_image         any image with Python 3.10 or later; its packages are what kernels import
    container_name     `None`: a new one at each start
    auto_remove        remove the container when it ends
    stop_container     `stop`, and the end of this process, end it; otherwise it goes on, and `start` finds it by its name
    docker_env         variables for the container
    expose_port        where the gateway listens inside the container; on this machine that is a free port of 127.0.0.1
    token              `None`: a new random one at each start. Not saved in configurations
    work_dir           the current folder of the kernels, inside
    bind_dir           the folder of this machine that is shown as `work_dir`; `None`: a temporary one, inside
    network            "none", "bridge", or a network of the engine: what kernels can reach; we reach them without it
    user               "uid:gid" inside; `None`: the caller, so that files in `bind_dir` belong to the caller
    limits             how much it and all its kernels may use, together
    runtime            one of the engine's runtimes
    create_kwargs      what else the engine is to be told when the container is made, in its own words
    on_pull            called with each `PullProgress` while `base_image` is fetched. Not saved in configurations

    It has no capabilities and can gain none; of our own image nothing but `work_dir`, `/tmp` and the home can be written. It
    starts on `with`, `async with`, `start()`, or when somebody asks for its `connection_info`: that raises
    `ContainerEngineUnavailable`, `ImageUnavailable`, `PackageError` or another `BackendError`.
    """

    component_type: ClassVar[str] = "jupyter_server"

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
        base_image: str = "python:3-slim",
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
                "token must not be empty: everybody on this machine could use the server."
            )
        self._given_token, self._on_pull = token, on_pull
        self._settings = GatewaySettings(
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
            limits=limits,
            runtime=runtime,
            create_kwargs=dict(create_kwargs or {}),
        )
        self._client: Client | None = None
        self._container: Container | None = None
        self._attachment: Attachment | None = None
        self._relay: Relay | None = None
        self._kills = 0  # processes ended for want of memory that we know of

    @property
    def bind_dir(self) -> Path | None:
        """The folder of this machine that the kernels work in."""
        return self._settings.bind_dir

    @property
    def container_name(self) -> str | None:
        """The container's name, when it has one."""
        return self._settings.container_name if self._container is None else self._container.name

    @property
    def limits(self) -> Limits:
        """How much it and all its kernels may use, together."""
        return self._settings.limits

    # on the engine's loop

    def _runs(self) -> bool:
        return self._relay is not None and (
            self._attachment is None or not self._attachment.has_ended
        )

    async def _launch(self) -> JupyterConnectionInfo:
        try:
            # An extra: without it the rest of the library works.
            from ..rest_api import JupyterApi
        except ImportError as error:
            raise ContainerEngineUnavailable(_MISSING) from error
        self._client = await connect()
        with contextlib.suppress(TimeoutError):  # the next one removes them
            async with asyncio.timeout(_ORPHANS):
                await orphans.remove_orphans(self._client)
        token = self._given_token or secrets.token_hex(32)
        self._container = await self._take(self._client, token)
        self._relay = Relay(self._container, self._settings.expose_port, _CONNECT)
        await self._relay.open()
        info = JupyterConnectionInfo("127.0.0.1", False, self._relay.port, token)
        api = JupyterApi(info)
        try:
            await self._wait_for(api, token)
        finally:
            await api.close()
        return info

    async def _take(self, client: Client, token: str) -> Container:
        """Give the container, started: the one that was kept, or a new one."""
        settings = self._settings
        if not settings.stop_container and settings.container_name is not None:
            there = await find(client, settings.container_name)
            if there is not None and await there.is_running():
                return there
        container = await self._make(client, token)
        self._container = container  # from here on there is something to remove
        if settings.stop_container:
            self._attachment = Attachment(container)
            await self._attachment.open()
        await container.start()
        if self._attachment is not None:
            await self._attachment.hold()
        return container

    async def _make(self, client: Client, token: str) -> Container:
        settings, self._kills = self._settings, 0
        image = settings.custom_image_name or await gateway_image(
            client, settings.base_image, self._on_pull
        )
        facts = await image_facts(client, image)
        if facts is None:
            raise ImageUnavailable(
                f"Custom image {image} does not exist. Fetch it: docker pull {image}"
            )
        if settings.bind_dir is not None:
            await asyncio.to_thread(settings.bind_dir.mkdir, parents=True, exist_ok=True)
        wanted = settings.container(client, image, facts, token)
        labels = orphans.labels(kept=not (settings.auto_remove and settings.stop_container))
        name = settings.container_name or f"cellblock-jupyter-{uuid.uuid4()}"
        return await create(client, replace(wanted, labels=labels), name)

    async def _wait_for(self, api: JupyterApi, token: str) -> None:
        """Wait until the gateway answers. Raises `BackendError`, with what the container said."""
        from ..rest_api import NoEntry

        last = "It did not answer."
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while self._runs():
                    try:
                        await api.kernel_specs()
                        return
                    except NoEntry:
                        raise
                    except BackendError as error:
                        last = str(error)
                    await asyncio.sleep(0.1)
        said = "" if self._attachment is None else self._attachment.last_words.replace(token, "***")
        raise BackendError(
            f"The Jupyter server in container {self.container_name} did not start: {said or last}"
        )

    async def _end(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None:
            await relay.close()
        container, self._container = self._container, None
        if container is not None and self._settings.stop_container:
            await (container.remove() if self._settings.auto_remove else container.stop())
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            await attachment.close()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def why_dead(self) -> Death:
        """See `Server`: as far as the container knows it."""
        before = self._kills
        with contextlib.suppress(BackendError, TimeoutError):
            async with asyncio.timeout(5):
                self._kills = await self._count_kills()
        if self._kills == before:
            return Death()
        text = f"\nOut of memory: the limit of {self.limits.memory_bytes} bytes (memory_bytes)."
        return Death(outcome="out_of_memory", limit="memory_bytes", message=text)

    async def _count_kills(self) -> int:
        """Ask how many processes of the container the kernel has ended for want of memory."""
        if self._container is None:
            return self._kills
        _, said = await self._container.run(["/bin/sh", "-c", _KILLS])
        found = [
            int(value)
            for name, _, value in (line.partition(" ") for line in said.splitlines())
            if name == "oom_kill"
        ]
        return max(found, default=self._kills)

    # saved configurations

    def _to_config(self) -> dict[str, Any]:
        values = {item.name: getattr(self._settings, item.name) for item in fields(self._settings)}
        folder = self._settings.bind_dir
        return {
            **values,
            "bind_dir": None if folder is None else str(folder),
            "limits": self.limits.to_dict(),
        }

    @classmethod
    def _from_config(cls, config: Mapping[str, Any]) -> Self:
        values = dict(config)
        if (limits := values.pop("limits", None)) is not None:
            values["limits"] = Limits.from_dict(limits)
        return cls(**values)
