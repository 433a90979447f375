"""Container: create, find, start, stop and remove a container, and run commands in it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import BackendError, ContainerEngineUnavailable, ImageUnavailable
from . import seccomp_profile
from .client import EngineClient, http_status, translate_errors
from .spec import ContainerSpec

if TYPE_CHECKING:
    import tarfile

    from aiodocker.containers import DockerContainer
    from aiodocker.execs import Exec

_START_SECONDS = 60.0  # for starting, stopping or removing a container
_COMMAND_SECONDS = 600.0  # for one command in it; an init_command may install packages
_KILL_SECONDS = 10.0  # for killing the processes in it
# kill(2) with -1 skips process 1 and the caller.
_KILL_ALL = "kill -9 -1 2>/dev/null; echo done"
_POLL_SECONDS = 0.02
_RETRY_PAUSES = (0.0, 0.1, 0.3, 1.0)  # seconds before each retry
_NOT_FOUND = 404
_NO_RETRY = (_NOT_FOUND, 409)  # the container does not exist, or does not run


class Container:
    """A container of an engine. Use it only on the background loop."""

    def __init__(self, client: EngineClient, inner: DockerContainer, name: str) -> None:
        self.client, self.name = client, name
        self._inner: Any = inner  # aiodocker types few of its results

    @property
    def id(self) -> str:
        """The container ID."""
        return str(self._inner.id)

    async def inspect(self) -> dict[str, Any]:
        """Return the engine's description of the container. Raise `BackendError` if it is gone."""
        with translate_errors(f"Container {self.name}"):
            return await self._inner.show()

    def switch_to(self, other: Container) -> None:
        """Make this object refer to the container of `other` from now on."""
        self._inner = other._inner

    async def is_running(self) -> bool:
        """Return True if the container exists and runs."""
        with contextlib.suppress(BackendError):
            return bool((await self.inspect())["State"]["Running"])
        return False

    async def start(self) -> None:
        """Start the container, and wait until it runs. Raise `BackendError` if it does not."""
        try:
            with translate_errors(f"Container {self.name} cannot be started"):
                await asyncio.wait_for(self._inner.start(), _START_SECONDS)
        except BackendError as error:
            raise _advise(error) from error

    async def kill_processes(self) -> None:
        """Kill every process in the container except process 1. Raise `BackendError` on failure."""

        async def kill() -> None:
            try:
                async with asyncio.timeout(_KILL_SECONDS):
                    _, output = await self.run_command(["/bin/sh", "-c", _KILL_ALL])
            except TimeoutError as error:
                raise BackendError(
                    f"The processes in container {self.name} were not killed "
                    f"within {_KILL_SECONDS:g} s."
                ) from error
            if "done" not in output:
                raise BackendError(
                    f"The processes in container {self.name} cannot be killed: "
                    f"{output.strip()[-2000:]}"
                )

        await _retry_lost_connections(kill)

    async def restart(self) -> None:
        """Restart the container without a grace period. Raise `BackendError` on failure."""

        async def restart() -> None:
            with translate_errors(f"Container {self.name} cannot be restarted"):
                await asyncio.wait_for(self._inner.restart(t=0), _START_SECONDS)

        await _retry_lost_connections(restart)

    async def stop(self) -> None:
        """Stop the container. Errors are ignored."""
        with (
            contextlib.suppress(BackendError),
            translate_errors(f"Container {self.name} cannot be stopped"),
        ):
            await asyncio.wait_for(self._inner.stop(t=1), _START_SECONDS)

    async def remove(self) -> None:
        """Kill and remove the container with its anonymous volumes. Errors are ignored."""
        with (
            contextlib.suppress(BackendError),
            translate_errors(f"Container {self.name} cannot be removed"),
        ):
            await asyncio.wait_for(self._inner.delete(force=True, v=True), _START_SECONDS)
        with contextlib.suppress(TimeoutError, BackendError):
            # The name stays in use while the engine is still removing the container.
            async with asyncio.timeout(_START_SECONDS):
                while await find_container(self.client, self.name) is not None:  # noqa: ASYNC110 - no event to wait for
                    await asyncio.sleep(_POLL_SECONDS)

    async def put_archive(self, path: str, archive: bytes) -> None:
        """Unpack a tar archive into the folder `path`. Raise `BackendError` on failure."""
        with translate_errors(f"Files cannot be copied into container {self.name}"):
            await self._inner.put_archive(path, archive)

    async def get_archive(self, path: str) -> tarfile.TarFile:
        """Return the folder `path` as a tar archive. Raise `BackendError` on failure."""
        with translate_errors(f"Files cannot be copied out of container {self.name}"):
            return await self._inner.get_archive(path)

    def attach(self) -> Any:
        """Return aiodocker's stream of the main process's input and output, not yet open."""
        return self._inner.attach(stdin=True, stdout=True, stderr=True)

    async def create_exec(self, argv: Sequence[str], *, stdin: bool = True, user: str = "") -> Exec:
        """Create an exec instance for `argv`, which the caller starts. `stdin` attaches its input.

        Raise `BackendError`, which quotes the container's log, if the container has exited.
        """
        try:
            with translate_errors(f"Container {self.name} cannot run a command"):
                return await self._inner.exec(
                    list(argv), user=user, stdin=stdin, stdout=True, stderr=True
                )
        except ContainerEngineUnavailable:
            raise
        except BackendError as error:
            raise BackendError(f"{error} {await self._recent_log()}".rstrip()) from error

    async def _recent_log(self) -> str:
        with contextlib.suppress(Exception):
            log = "".join(await self._inner.log(stdout=True, stderr=True))
            return f"Its log ends with: {log[-2000:]}"
        return ""

    async def run_command(self, argv: Sequence[str], *, user: str = "") -> tuple[int, str]:
        """Run `argv` in the container, and return its exit code and the end of its output.

        Raise `BackendError` if it cannot be run, `TimeoutError` if it does not exit in time.
        """
        execution, output = await self.create_exec(argv, user=user), bytearray()
        with translate_errors(f"Container {self.name} cannot run a command"):
            async with asyncio.timeout(_COMMAND_SECONDS), execution.start(detach=False) as stream:
                while (message := await stream.read_out()) is not None:
                    output = (output + message.data)[-20_000:]
            info = await execution.inspect()
        return int(info["ExitCode"] or 0), bytes(output).decode(errors="replace")


async def _retry_lost_connections(step: Callable[[], Awaitable[None]]) -> None:
    """Call `step` again if the connection to the engine was lost.

    Every pooled connection that the engine has closed fails once, so several retries can be needed.
    """
    for pause in _RETRY_PAUSES:
        try:
            return await step()
        except BackendError as error:
            if http_status(error.__cause__) in _NO_RETRY:
                raise
            await asyncio.sleep(pause)
    await step()


async def find_container(client: EngineClient, name: str) -> Container | None:
    """Return the container called `name`, or None if there is none."""
    try:
        with translate_errors(f"Container {name}"):
            return Container(client, await client.docker.containers.get(name), name)
    except BackendError as error:
        if http_status(error.__cause__) == _NOT_FOUND:
            return None
        raise


async def create_container(client: EngineClient, spec: ContainerSpec, name: str) -> Container:
    """Create a container without starting it.

    Raise `ImageUnavailable` if the engine does not have its image, `BackendError` for other
    failures.
    """
    # The engine creates the container even if it loses the client.
    creating = asyncio.ensure_future(_create_container(client, spec, name))
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        done, _ = await asyncio.wait([creating], timeout=_START_SECONDS)
        creating.cancel()
        with contextlib.suppress(BackendError):
            for created in done:
                await created.result().remove()
        raise


async def _create_container(client: EngineClient, spec: ContainerSpec, name: str) -> Container:
    try:
        with (
            translate_errors(f"Container {name} cannot be created"),
            seccomp_profile.given_to(is_podman=client.is_podman) as seccomp,
        ):
            body = spec.create_body(seccomp)
            inner = await client.docker.containers.create(body, name=name)
            return Container(client, inner, name)
    except BackendError as error:
        match http_status(error.__cause__):
            case 404:
                raise ImageUnavailable(
                    f"The container engine has no image {spec.image}. {error}"
                ) from error
            case 409:
                raise BackendError(f"{name_taken_message(name)} {error}") from error
            case _:
                raise _advise(error) from error


def _advise(error: BackendError) -> BackendError:
    """Return `error`, with what to do about an engine that refuses the system call filter."""
    if isinstance(error, ContainerEngineUnavailable) or "seccomp" not in str(error):
        return error
    return BackendError(f"{error} {seccomp_profile.REFUSED_ADVICE}")


def name_taken_message(name: str) -> str:
    """Return the error text for a container name that is in use."""
    return (
        f"There is already a container named {name}. Choose another container_name, "
        f"or remove it: docker rm -f {name}."
    )
