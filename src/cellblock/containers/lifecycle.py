"""ContainerLifecycle: acquire a container, new or found by its name, restart it, and release it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import replace

from ..errors import BackendError, ContainerEngineUnavailable, ImageUnavailable
from . import orphans
from .client import EngineClient
from .container import Container, create_container, find_container, name_taken_message
from .images import OnPull, pull_image
from .spec import WORK_DIR, ContainerSpec

_GPU_ADVICE = (
    "It requests devices (device_requests). A GPU needs the driver on the host and the NVIDIA "
    "Container Toolkit in the engine. Install them, or leave device_requests out."
)
_ORPHAN_SECONDS = 10.0  # that removing orphans may delay a start


class ContainerLifecycle:
    """The container of one executor, from its creation to its release.

    name             name of the container, which is reused if it exists; None: a new container
    stop_container   stop the container on release
    init_command     shell command to run in the container after every start
    on_pull          called with the progress when a missing image is pulled
    """

    def __init__(
        self,
        client: EngineClient,
        spec: ContainerSpec,
        name: str | None,
        *,
        stop_container: bool,
        init_command: str | None,
        on_pull: OnPull | None = None,
    ) -> None:
        kept = not (spec.auto_remove and stop_container)
        self._spec = replace(spec, labels={**spec.labels, **orphans.owner_labels(kept=kept)})
        self._client, self._name_is_generated = client, name is None
        self._name = name or f"cellblock-{uuid.uuid4()}"
        self._stop_container, self._init_command = stop_container, init_command
        self._on_pull = on_pull
        self._container: Container | None = None

    async def acquire(self) -> Container:
        """Create the container, or find the one that was kept, and return it, running.

        Raise `BackendError` or `ImageUnavailable`; then nothing is left behind.
        """
        if not self._name_is_generated:
            await self._remove_orphans()  # an orphan may have the name
            if (container := await find_container(self._client, self._name)) is not None:
                await self._reuse(container)
                self._container = container
                return container
        cleanup = asyncio.create_task(self._remove_orphans())
        try:
            container = await self._start_new()
        except BaseException:
            cleanup.cancel()  # it can take long
            await asyncio.wait([cleanup])
            raise
        await cleanup
        return container

    async def _start_new(self) -> Container:
        container = self._container = await self._create()
        try:
            await self._start(container)
        except BaseException:
            await container.remove()
            raise
        return container

    async def _create(self) -> Container:
        try:
            return await create_container(self._client, self._spec, self._name)
        except ImageUnavailable:
            await pull_image(self._client, self._spec.image, self._on_pull)
            return await create_container(self._client, self._spec, self._name)

    async def _remove_orphans(self) -> None:
        try:
            async with asyncio.timeout(_ORPHAN_SECONDS):
                await orphans.remove_orphans(self._client)
        except TimeoutError:
            pass  # the next start or `cellblock clean` removes them

    async def _reuse(self, container: Container) -> None:
        info = await container.inspect()
        labels: Mapping[str, str] = info["Config"].get("Labels") or {}
        if labels.get(orphans.KEPT_LABEL) != "1":
            taken = name_taken_message(self._name)
            raise BackendError(f"{taken} It was not created to be kept.")
        if info.get("ExecIDs"):
            raise BackendError(f"{name_taken_message(self._name)} Another executor uses it.")
        if (other := info["Config"]["Image"]) != self._spec.image:
            raise BackendError(
                f"The container {self._name} was created from another image ({other}) or for other "
                f"packages. Choose another container_name, or remove it: docker rm -f {self._name}."
            )
        mounts = {str(mount["Destination"]): str(mount["Source"]) for mount in info["Mounts"]}
        mounted = mounts.get(WORK_DIR, "")
        if self._spec.work_dir is not None and mounted != self._spec.work_dir:
            raise BackendError(
                f"The container {self._name} was created for another work folder. Pass "
                f"work_dir={mounted}, or remove the container: docker rm -f {self._name}."
            )
        if not info["State"]["Running"]:
            await self._start(container)

    async def _start(self, container: Container) -> None:
        try:
            await container.start()
        except BackendError as error:
            if not self._spec.devices:
                raise
            raise BackendError(f"{str(error).rstrip('.')}. {_GPU_ADVICE}") from error
        await self._run_init_command(container)

    async def _run_init_command(self, container: Container) -> None:
        if not self._init_command:
            return
        exit_code, output = await container.run_command(["/bin/sh", "-c", self._init_command])
        if exit_code != 0:
            raise BackendError(
                f"init_command failed with exit code {exit_code}: {output.strip()[-2000:]}"
            )

    async def reset_processes(self) -> None:
        """Kill all processes in the container, which keeps running with its files.

        Run `init_command` again. Raise `BackendError` on failure.
        """
        container = self._acquired()
        await container.kill_processes()
        await self._run_init_command(container)

    async def restart(self, *, or_recreate: bool = False) -> bool:
        """Restart the container, and return True if it had to be created again.

        With `or_recreate`, create it again if it is gone or about to be removed. Raise
        `BackendError` on failure.
        """
        container = self._acquired()
        try:
            await container.restart()
        except ContainerEngineUnavailable:
            raise
        except BackendError:
            if not (or_recreate and self._spec.auto_remove):
                raise
            await container.remove()
            container.switch_to(await self._create())
            await self._start(container)
            return True
        await self._run_init_command(container)
        return False

    def _acquired(self) -> Container:
        assert self._container is not None
        return self._container

    async def release(self, *, restarting: bool = False) -> None:
        """Stop and remove the container, or keep it, as configured.

        `restarting`: the executor acquires a container again immediately, so this one is not kept
        running.
        """
        container, self._container = self._container, None
        if container is None:
            return
        if self._spec.auto_remove and (self._stop_container or restarting):
            await container.remove()
        elif self._stop_container or restarting:
            await container.stop()
