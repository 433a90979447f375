"""Container: one that is made, found again, started, emptied of processes, restarted, looked at and removed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BackendError, ContainerEngineUnavailable, ImageUnavailable
from .client import Client, status_of, translated
from .spec import ContainerSettings

if TYPE_CHECKING:
    import tarfile

    from aiodocker.containers import DockerContainer
    from aiodocker.execs import Exec

_STARTING = 60.0  # seconds that a container may take to run
_STEP = 600.0  # seconds that a step of the preparation may take: installing something, for one
_ENDING = 10.0  # seconds that it may take to end what runs in a container
_END_ALL = "kill -9 -1 2>/dev/null; echo done"  # the kernel leaves out the first process, and the one that asks
_LOOK = 0.02
_PAUSES = (0.0, 0.1, 0.3, 1.0)  # seconds before another try to reach the engine
_NOT_FOUND = 404
_FINAL = (_NOT_FOUND, 409)  # there is no such container, or it does not run


class Container:
    """A container of an engine. Belongs to the engine's loop."""

    def __init__(self, client: Client, inner: DockerContainer, name: str) -> None:
        self.client, self.name = client, name
        self._inner: Any = inner  # most of whose answers are without types

    @property
    def id(self) -> str:
        """What the engine calls it."""
        return str(self._inner.id)

    async def facts(self) -> dict[str, Any]:
        """Give all that the engine says about it. Raises `BackendError` when it is gone."""
        with translated(f"Container {self.name}"):
            return await self._inner.show()

    def become(self, other: Container) -> None:
        """Be `other` from now on, for all who have hold of this one."""
        self._inner = other._inner

    async def is_running(self) -> bool:
        """Tell whether it runs; not when it is gone."""
        with contextlib.suppress(BackendError):
            return bool((await self.facts())["State"]["Running"])
        return False

    async def start(self) -> None:
        """Start it, and wait until it runs. Raises `BackendError`."""
        with translated(f"Container {self.name} cannot be started"):
            await asyncio.wait_for(self._inner.start(), _STARTING)

    async def end_all(self) -> None:
        """End all that runs in it, but its first process. Raises `BackendError`."""

        async def sweep() -> None:
            try:
                async with asyncio.timeout(_ENDING):
                    _, said = await self.run(["/bin/sh", "-c", _END_ALL])
            except TimeoutError as error:
                raise BackendError(
                    f"What runs in container {self.name} cannot be ended within {_ENDING:g} s."
                ) from error
            if "done" not in said:
                raise BackendError(
                    f"What runs in container {self.name} cannot be ended: {said.strip()[-2000:]}"
                )

        await _over_any_connection(sweep)

    async def restart(self) -> None:
        """End all that runs in it, and start it again. Raises `BackendError`."""

        async def restart() -> None:
            with translated(f"Container {self.name} cannot be restarted"):
                await asyncio.wait_for(self._inner.restart(t=0), _STARTING)

        await _over_any_connection(restart)

    async def stop(self) -> None:
        """End all that runs in it, if anything does."""
        with (
            contextlib.suppress(BackendError),
            translated(f"Container {self.name} cannot be stopped"),
        ):
            await asyncio.wait_for(self._inner.stop(t=1), _STARTING)

    async def remove(self) -> None:
        """End and remove it, with the volumes that are its own; does nothing when it is gone."""
        with (
            contextlib.suppress(BackendError),
            translated(f"Container {self.name} cannot be removed"),
        ):
            await asyncio.wait_for(self._inner.delete(force=True, v=True), _STARTING)
        with contextlib.suppress(TimeoutError, BackendError):
            async with asyncio.timeout(
                _STARTING
            ):  # where the engine is at it already, its name is taken until it is done
                while await find(self.client, self.name) is not None:  # noqa: ASYNC110 - nobody tells us
                    await asyncio.sleep(_LOOK)

    async def put(self, path: str, archive: bytes) -> None:
        """Unpack a tar archive into its folder `path`. Raises `BackendError`."""
        with translated(f"Files cannot be copied into container {self.name}"):
            await self._inner.put_archive(path, archive)

    async def get(self, path: str) -> tarfile.TarFile:
        """Give its folder `path` as a tar archive. Raises `BackendError`."""
        with translated(f"Files cannot be copied out of container {self.name}"):
            return await self._inner.get_archive(path)

    async def execute(self, argv: Sequence[str], *, stdin: bool = True, user: str = "") -> Exec:
        """Make what starts `argv` in it, with a stream to its standard input where wanted.

        Raises `BackendError`, with what the container said when it has ended.
        """
        try:
            with translated(f"Container {self.name} runs nothing more"):
                return await self._inner.exec(
                    list(argv), user=user, stdin=stdin, stdout=True, stderr=True
                )
        except ContainerEngineUnavailable:
            raise
        except BackendError as error:
            raise BackendError(f"{error} {await self._said()}".rstrip()) from error

    async def _said(self) -> str:
        with contextlib.suppress(Exception):
            return f"It said: {''.join(await self._inner.log(stdout=True, stderr=True))[-2000:]}"
        return ""

    async def run(self, argv: Sequence[str], *, user: str = "") -> tuple[int, str]:
        """Run `argv` in it to its end; give its exit code, and what it wrote. Raises `BackendError`."""
        execution, said = await self.execute(argv, user=user), bytearray()
        with translated(f"Container {self.name} runs nothing more"):
            async with asyncio.timeout(_STEP), execution.start(detach=False) as stream:
                while (message := await stream.read_out()) is not None:
                    said = (said + message.data)[-20_000:]
            facts = await execution.inspect()
        return int(facts["ExitCode"] or 0), bytes(said).decode(errors="replace")


async def _over_any_connection(step: Callable[[], Awaitable[None]]) -> None:
    """Take `step`, and again where the way to the engine had broken: connections that were kept show that one by one."""
    for pause in _PAUSES:
        try:
            return await step()
        except BackendError as error:
            if status_of(error.__cause__) in _FINAL:
                raise
            await asyncio.sleep(pause)
    await step()


async def find(client: Client, name: str) -> Container | None:
    """Give the container of that name; `None` when there is none."""
    try:
        with translated(f"Container {name}"):
            return Container(client, await client.docker.containers.get(name), name)
    except BackendError as error:
        if status_of(error.__cause__) == _NOT_FOUND:
            return None
        raise


async def create(client: Client, settings: ContainerSettings, name: str) -> Container:
    """Make a container, which does not run yet. Raises `BackendError`, or `ImageUnavailable` when its image is not there."""
    try:
        with translated(f"Container {name} cannot be made"):
            return Container(
                client, await client.docker.containers.create(settings.config(), name=name), name
            )
    except BackendError as error:
        match status_of(error.__cause__):
            case 404:
                raise ImageUnavailable(
                    f"The engine has no image {settings.image}. {error}"
                ) from error
            case 409:
                raise BackendError(f"{taken(name)} {error}") from error
            case _:
                raise


def taken(name: str) -> str:
    """Say that a name is another's, and what to do."""
    return f"There is a container of the name {name} already: take another container_name, or remove it (docker rm -f {name})."
