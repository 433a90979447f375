"""The way to a container engine. What it answers to us in errors becomes an error of our tree here, once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import BackendError, ContainerEngineUnavailable

if TYPE_CHECKING:
    from aiodocker import Docker

_PATIENCE = 20.0  # seconds that an engine may take to say who it is
_FRESH = 60.0  # seconds for which that is taken to hold: an engine that is started again may have other settings
_UNREACHABLE = 900  # what aiodocker says when there was no answer at all
_EXTRA = "Containers need the extra `docker`: pip install 'cellblock[docker]'."
_FULL = " The engine's disk is full: `docker system df` shows it, `docker system prune` removes what nothing uses."
_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock", "~/.docker/run/docker.sock")


class Client:
    """An engine that has answered. Belongs to the engine's loop; `close` lets go of it.

    docker   aiodocker's client, most of whose answers are without types
    info     what it says about itself: version, runtimes, control groups, security options
    version  what it says about its parts
    """

    def __init__(self, docker: Docker, info: Mapping[str, Any], version: Mapping[str, Any]) -> None:
        self.docker: Any = docker
        self.info, self.version = info, version

    @property
    def is_podman(self) -> bool:
        """Whether it is Podman, which understands most of what Docker's engine does."""
        return any("Podman" in str(part["Name"]) for part in self.version.get("Components") or ())

    @property
    def is_rootless(self) -> bool:
        """Whether the engine runs as a plain user, who is root inside."""
        # Podman's first word of it is a key of its own; older ones do not say it as Docker's engine does.
        return "name=rootless" in self._security_options() or self.info.get("Rootless") is True

    @property
    def remaps_users(self) -> bool:
        """Whether users inside are others outside."""
        return "name=userns" in self._security_options()

    def _security_options(self) -> list[str]:
        return [str(option).partition(",")[0] for option in self.info.get("SecurityOptions") or ()]

    @property
    def cgroup_version(self) -> str:
        """The version of its control groups."""
        return str(self.info.get("CgroupVersion") or "1")

    @property
    def holds_limits(self) -> bool:
        """Whether its control groups hold a container's memory and processes: a plain user may not always make any."""
        if self.is_podman and self.is_rootless and self.cgroup_version == "1":
            return False  # it says that it does, and then leaves the limits out
        return all(self.info.get(name, True) for name in ("MemoryLimit", "PidsLimit"))

    @property
    def socket(self) -> Path | None:
        """The socket of an engine of this machine; `None` when it is reached otherwise."""
        host = str(self.docker._connection_info)
        return Path(host.removeprefix("unix://")) if host.startswith("unix://") else None

    @property
    def runtimes(self) -> list[str]:
        """The names of its runtimes."""
        return sorted(self.info.get("Runtimes") or ())

    def is_gvisor(self, runtime: str | None) -> bool:
        """Whether that runtime, or the default one, is gVisor's."""
        runtimes: Mapping[str, Mapping[str, Any]] = self.info.get("Runtimes") or {}
        found = runtimes.get(runtime or str(self.info.get("DefaultRuntime"))) or {}
        return "runsc" in os.path.basename(str(found.get("path") or found.get("runtimeType") or ""))

    async def close(self) -> None:
        """Let go of it."""
        await self.docker.close()


async def connect() -> Client:
    """Reach the engine that DOCKER_HOST or the current context names, or this machine's. Raises `ContainerEngineUnavailable`."""
    try:
        import aiodocker  # an extra
    except ImportError as error:
        raise ContainerEngineUnavailable(_EXTRA) from error
    try:
        docker = aiodocker.Docker()
    except AssertionError as error:  # what it raises when it finds no socket
        raise ContainerEngineUnavailable(_nothing_there()) from error
    except (ValueError, OSError, aiodocker.DockerError) as error:
        raise ContainerEngineUnavailable(
            f"The container engine cannot be reached ({error}): look at DOCKER_HOST."
        ) from error
    try:
        async with asyncio.timeout(_PATIENCE):
            info, version = await _facts(docker)
            docker.api_version = f"v{version['ApiVersion']}"  # else it would ask again
            return Client(docker, info, version)
    except (TimeoutError, OSError, aiodocker.DockerError) as error:
        await docker.close()
        raise ContainerEngineUnavailable(_why_not(str(docker._connection_info), error)) from error
    except BaseException:
        await docker.close()
        raise


async def _facts(docker: Docker) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give what the engine says about itself and its parts; it starts four programs for that, so it is not always asked."""
    engine, now = _engine_behind(str(docker._connection_info)), time.monotonic()
    known = _known.get(engine)
    if known is not None and now < known.asked + _FRESH:
        async with docker._query("_ping", versioned_api=False):  # whether it lives
            return known.info, known.version
    asks = (docker._query_json(what, versioned_api=False) for what in ("info", "version"))
    info, version = await asyncio.gather(*asks)
    if engine is not None:
        _known[engine] = _Facts(now, info, version)
    return info, version


def _engine_behind(host: str) -> tuple[object, ...] | None:
    """Tell one engine of this machine from the next, which makes a socket of its own; `None` when it is reached otherwise."""
    if not host.startswith("unix://"):
        return None
    status = os.stat(path := host.removeprefix("unix://"))
    return path, status.st_ino, status.st_ctime_ns


class _Facts(NamedTuple):
    asked: float
    info: dict[str, Any]
    version: dict[str, Any]


_known: dict[tuple[object, ...] | None, _Facts] = {}  # by engine


@contextlib.asynccontextmanager
async def connected() -> AsyncGenerator[Client]:
    """Reach the engine for as long as this lasts. Raises `ContainerEngineUnavailable`."""
    client = await connect()
    try:
        yield client
    finally:
        await client.close()


def _nothing_there() -> str:
    return (
        f"No container engine is here: DOCKER_HOST is not set, and there is no socket at {' or '.join(_SOCKETS)}. "
        "Install and start Docker (Debian: docker.io), or set DOCKER_HOST."
    )


def _why_not(host: str, error: BaseException) -> str:
    path = host.removeprefix("unix://")
    if (
        host.startswith("unix://")
        and os.path.exists(path)
        and not os.access(path, os.R_OK | os.W_OK)
    ):
        return (
            f"This user may not use the container engine's socket {path}: add the user to the socket's group "
            "(usually `docker`; it is as good as root) and log in again, or use a rootless engine."
        )
    if isinstance(error, TimeoutError):
        return f"The container engine at {host} did not answer within {_PATIENCE:.0f} s."
    return f"The container engine at {host} does not answer ({error}). Is it started? Look at DOCKER_HOST."


@contextlib.contextmanager
def translated(what: str) -> Generator[None]:
    """Turn the engine's errors into `BackendError`, which begins with `what` could not be done."""
    import aiodocker  # an extra; who comes here has it

    try:
        yield
    except aiodocker.DockerError as error:
        if error.status == _UNREACHABLE:
            raise ContainerEngineUnavailable(
                f"{what}: the container engine does not answer any more. Is it still running?"
            ) from error
        advice = _FULL if "no space left on device" in str(error.message) else ""
        raise BackendError(f"{what}: {error.message}{advice}") from error
    except OSError as error:
        raise ContainerEngineUnavailable(
            f"{what}: the connection to the container engine broke ({error})."
        ) from error


def status_of(error: BaseException | None) -> int:
    """Give the engine's status behind an error of ours: 404 there is none, 409 in the way; 0: it did not come from there."""
    return int(getattr(error, "status", 0))
