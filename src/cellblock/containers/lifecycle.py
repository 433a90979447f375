"""Tenant: who has a container for some time. Takes it, new or found by its name, restarts it, and leaves it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import replace

from ..errors import BackendError, ContainerEngineUnavailable, ImageUnavailable
from . import orphans
from .client import Client
from .container import Container, create, find, taken
from .images import OnPull, pull
from .spec import WORK_DIR, ContainerSettings

_DEVICES = (
    "It was asked for devices (device_requests): a GPU needs the machine's driver, and the NVIDIA Container Toolkit in the "
    "engine; without device_requests it starts everywhere."
)
_ORPHANS = 10.0  # seconds that the removal of others' leftovers may hold up a start


class Tenant:
    """One executor's hold on its container.

    name             of the container; `None`: a new one
    stop_container   end the container when leaving
    init_command     a shell command that is run in it whenever it has been started
    on_pull          is told how far the fetching of the image is, where it is not there
    """

    def __init__(
        self,
        client: Client,
        settings: ContainerSettings,
        name: str | None,
        *,
        stop_container: bool,
        init_command: str | None,
        on_pull: OnPull | None = None,
    ) -> None:
        kept = not (settings.auto_remove and stop_container)
        self._settings = replace(settings, labels={**settings.labels, **orphans.labels(kept=kept)})
        self._client, self._has_own_name, self._name = (
            client,
            name is None,
            name or f"cellblock-{uuid.uuid4()}",
        )
        self._stop_container, self._init_command = stop_container, init_command
        self._on_pull = on_pull
        self._container: Container | None = None

    async def take(self) -> Container:
        """Make the container, or find the one that was kept, and start it. Leaves nothing half made when it raises."""
        if not self._has_own_name:
            await self._remove_orphans()  # one of them may have the name
            if (container := await find(self._client, self._name)) is not None:
                await self._take_again(container)
                self._container = container
                return container
        meanwhile = asyncio.create_task(self._remove_orphans())
        try:
            return await self._take_new()
        finally:
            await meanwhile

    async def _take_new(self) -> Container:
        container = self._container = await self._create()
        try:
            await self._begin(container)
        except BaseException:
            await container.remove()
            raise
        return container

    async def _create(self) -> Container:
        try:
            return await create(self._client, self._settings, self._name)
        except ImageUnavailable:
            await pull(self._client, self._settings.image, self._on_pull)
            return await create(self._client, self._settings, self._name)

    async def _remove_orphans(self) -> None:
        try:
            async with asyncio.timeout(_ORPHANS):
                await orphans.remove_orphans(self._client)
        except TimeoutError:
            pass  # they are removed by the next one, or by `cellblock clean`

    async def _take_again(self, container: Container) -> None:
        facts = await container.facts()
        labels: Mapping[str, str] = facts["Config"].get("Labels") or {}
        if labels.get(orphans.KEPT) != "1":
            raise BackendError(
                f"{taken(self._name)} It is not one that an executor of ours was to keep."
            )
        if facts.get("ExecIDs"):
            raise BackendError(f"{taken(self._name)} Another executor uses it.")
        if (other := facts["Config"]["Image"]) != self._settings.image:
            raise BackendError(
                f"The container {self._name} was made of another image, {other}, or for other packages: take another "
                f"container_name, or remove it (docker rm -f {self._name})."
            )
        shown = {str(mount["Destination"]): str(mount["Source"]) for mount in facts["Mounts"]}.get(
            WORK_DIR, ""
        )
        if self._settings.work_dir is not None and shown != self._settings.work_dir:
            raise BackendError(
                f"The container {self._name} was made for another work folder: give work_dir={shown}, or remove the "
                f"container (docker rm -f {self._name})."
            )
        if not facts["State"]["Running"]:
            await self._begin(container)

    async def _begin(self, container: Container) -> None:
        try:
            await container.start()
        except BackendError as error:
            if not self._settings.devices:
                raise
            raise BackendError(f"{error} {_DEVICES}") from error
        await self._prepare(container)

    async def _prepare(self, container: Container) -> None:
        if not self._init_command:
            return
        exit_code, said = await container.run(["/bin/sh", "-c", self._init_command])
        if exit_code != 0:
            raise BackendError(
                f"init_command ended with exit code {exit_code}: {said.strip()[-2000:]}"
            )

    async def empty(self) -> None:
        """End all that runs in the container, which itself goes on with its files. Raises `BackendError`."""
        container = self._taken()
        await container.end_all()
        await self._prepare(container)

    async def restart(self, *, or_replace: bool = False) -> bool:
        """End the container and start it again; tell whether that was another one. Raises `BackendError`.

        `or_replace`: where it is gone, or about to be, have another in its place.
        """
        container = self._taken()
        try:
            await container.restart()
        except ContainerEngineUnavailable:
            raise
        except BackendError:
            if not (or_replace and self._settings.auto_remove):
                raise
            await container.remove()
            container.become(await self._create())
            await self._begin(container)
            return True
        await self._prepare(container)
        return False

    def _taken(self) -> Container:
        assert self._container is not None
        return self._container

    async def leave(self, *, restarting: bool = False) -> None:
        """Stop and remove the container, or keep it, as was said; while restarting, what can be made anew goes."""
        container, self._container = self._container, None
        if container is None:
            return
        if self._settings.auto_remove and (self._stop_container or restarting):
            await container.remove()
        elif self._stop_container or restarting:
            await container.stop()
