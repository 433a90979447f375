"""Connect to a container engine, and translate its errors into cellblock's."""

# aiodocker has no public names for its address and requests.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ..errors import BackendError, CellblockError, ContainerEngineUnavailable

if TYPE_CHECKING:
    from aiodocker import Docker

_ANSWER_SECONDS = 20.0
_INFO_CACHE_SECONDS = 60.0  # an engine that was restarted may have other settings
_UNREACHABLE = 900  # aiodocker's status for a request without a response
_MISSING_EXTRA = "Containers need the extra `docker`: pip install 'cellblock[docker]'."
_DISK_FULL = (
    " The engine's disk is full: `docker system df` shows what uses it, "
    "`docker system prune` removes unused data."
)
# By the program of the engine.
_START_ADVICE = {
    "dockerd": "Docker is installed but not running. Start it: sudo systemctl start docker.",
    "podman": (
        "Podman is installed but its service is not running. Start it: systemctl --user start "
        "podman.socket, and set DOCKER_HOST=unix://$XDG_RUNTIME_DIR/podman/podman.sock."
    ),
}
# What aiodocker raises for an answer with a missing header, broken JSON or missing fields.
_INVALID_ANSWER = (TypeError, ValueError, LookupError, AttributeError)
_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock", "~/.docker/run/docker.sock")


class EngineClient:
    """A connection to an engine that has responded. Use it only on the background loop.

    docker   the client of aiodocker, which types few of its results
    info     the result of `docker info`: version, runtimes, control groups, security options
    version  the result of `docker version`
    """

    def __init__(self, docker: Docker, info: Mapping[str, Any], version: Mapping[str, Any]) -> None:
        self.docker: Any = docker
        self.info, self.version = info, version

    @property
    def is_podman(self) -> bool:
        """Whether the engine is Podman, which implements most of Docker's API."""
        return any("Podman" in str(part["Name"]) for part in self.version.get("Components") or ())

    @property
    def is_rootless(self) -> bool:
        """Whether the engine runs as an unprivileged user, which is root inside containers."""
        # Older versions of Podman report it only under another key.
        return "name=rootless" in self._security_options() or self.info.get("Rootless") is True

    @property
    def remaps_users(self) -> bool:
        """Whether the engine maps users inside containers to other users on the host."""
        return "name=userns" in self._security_options()

    def _security_options(self) -> list[str]:
        return [str(option).partition(",")[0] for option in self.info.get("SecurityOptions") or ()]

    @property
    def cgroup_version(self) -> str:
        """The version of control groups that the engine uses: "1" or "2"."""
        return str(self.info.get("CgroupVersion") or "1")

    @property
    def enforces_limits(self) -> bool:
        """Whether the engine can limit the memory and processes of a container by control groups.

        A rootless engine often cannot.
        """
        if self.is_podman and self.is_rootless and self.cgroup_version == "1":
            return False  # it reports support, but ignores the limits
        return all(self.info.get(name, True) for name in ("MemoryLimit", "PidsLimit"))

    @property
    def socket(self) -> Path | None:
        """The engine's Unix socket, or None if it is reached over the network."""
        host = str(self.docker._connection_info)
        return Path(host.removeprefix("unix://")) if host.startswith("unix://") else None

    @property
    def runtimes(self) -> list[str]:
        """The names of the engine's runtimes."""
        return sorted(self.info.get("Runtimes") or ())

    def is_gvisor(self, runtime: str | None) -> bool:
        """Return True if `runtime`, or the default runtime if it is None, is gVisor."""
        runtimes: Mapping[str, Mapping[str, Any]] = self.info.get("Runtimes") or {}
        found = runtimes.get(runtime or str(self.info.get("DefaultRuntime"))) or {}
        return "runsc" in os.path.basename(str(found.get("path") or found.get("runtimeType") or ""))

    async def close(self) -> None:
        """Close the connection."""
        await self.docker.close()


async def connect() -> EngineClient:
    """Connect to the engine named by DOCKER_HOST or the current context, or to the local one.

    Raise `ContainerEngineUnavailable` if there is none, or it does not respond as an engine does.
    """
    try:
        import aiodocker  # an extra
        import aiohttp
    except ImportError as error:
        raise ContainerEngineUnavailable(_MISSING_EXTRA) from error
    try:
        docker = aiodocker.Docker()
    except AssertionError as error:  # aiodocker found no socket
        raise ContainerEngineUnavailable(_no_socket_message()) from error
    except (ValueError, OSError, aiodocker.DockerError) as error:
        raise ContainerEngineUnavailable(
            f"The container engine cannot be reached ({error}). Check DOCKER_HOST."
        ) from error
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            info, version = await _engine_info(docker)
            docker.api_version = f"v{version['ApiVersion']}"  # saves aiodocker another request
            return EngineClient(docker, info, version)
    except (TimeoutError, OSError, aiodocker.DockerError) as error:
        await docker.close()
        raise ContainerEngineUnavailable(
            _unreachable_message(str(docker._connection_info), error)
        ) from error
    except (aiohttp.ClientError, *_INVALID_ANSWER) as error:
        host = str(docker._connection_info)
        await docker.close()
        raise ContainerEngineUnavailable(
            f"What answers at {host} is not a container engine ({_describe(error)}). "
            "Start the engine, or check DOCKER_HOST."
        ) from error
    except BaseException:
        await docker.close()
        raise


async def _engine_info(docker: Docker) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the engine's info and version, cached: the engine runs four programs for them."""
    engine, now = _socket_identity(str(docker._connection_info)), time.monotonic()
    known = _info_cache.get(engine)
    if known is not None and now < known.asked + _INFO_CACHE_SECONDS:
        async with docker._query("_ping", versioned_api=False):  # the engine may be gone
            return known.info, known.version
    requests = (docker._query_json(path, versioned_api=False) for path in ("info", "version"))
    info, version = await asyncio.gather(*requests)
    if not isinstance(info, dict):
        raise TypeError("its description is not a JSON object")
    if engine is not None:
        _info_cache[engine] = _EngineInfo(now, info, version)
    return cast("dict[str, Any]", info), version


def _socket_identity(host: str) -> tuple[object, ...] | None:
    """Return a key for the engine behind a Unix socket, or None for any other connection.

    An engine that was restarted has created a new socket, and so has another key.
    """
    if not host.startswith("unix://"):
        return None
    status = os.stat(path := host.removeprefix("unix://"))
    return path, status.st_ino, status.st_ctime_ns


class _EngineInfo(NamedTuple):
    asked: float
    info: dict[str, Any]
    version: dict[str, Any]


_info_cache: dict[tuple[object, ...] | None, _EngineInfo] = {}  # by engine


@contextlib.asynccontextmanager
async def open_client() -> AsyncGenerator[EngineClient]:
    """Connect to the engine, and close the connection on exit. See `connect` for errors."""
    client = await connect()
    try:
        yield client
    finally:
        await client.close()


def _no_socket_message() -> str:
    if advice := _start_advice():
        return f"{advice} There is no socket at {' or '.join(_SOCKETS)}."
    return (
        "No container engine was found: DOCKER_HOST is not set, and there is no socket at "
        f"{' or '.join(_SOCKETS)}. Install and start Docker (Debian: docker.io), "
        "or set DOCKER_HOST."
    )


def _unreachable_message(host: str, error: BaseException) -> str:
    path = host.removeprefix("unix://")
    is_forbidden = os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK)
    if host.startswith("unix://") and (is_forbidden or isinstance(error, PermissionError)):
        return (
            f"You have no permission to use the container engine's socket {path}. Add your user to "
            "the socket's group (usually `docker`, which is equivalent to root) and log in again, "
            "or use a rootless engine."
        )
    if isinstance(error, TimeoutError):
        return f"The container engine at {host} did not answer within {_ANSWER_SECONDS:.0f} s."
    if host.startswith("unix://") and (advice := _start_advice()):
        return f"{advice} Nothing answers at {path}; if that is wrong, check DOCKER_HOST."
    return (
        f"The container engine at {host} does not answer ({error}). Start it, or check DOCKER_HOST."
    )


def _start_advice() -> str:
    """Return how to start the engine that is installed here; "" if none is."""
    for program, advice in _START_ADVICE.items():
        if shutil.which(program):
            return advice
    return ""


@contextlib.contextmanager
def translate_errors(failure: str) -> Generator[None]:
    """Raise the engine's errors as `BackendError`, with a message that begins with `failure`."""
    import aiodocker  # an extra; a caller with a client has it
    import aiohttp

    try:
        yield
    except CellblockError:
        raise
    except aiodocker.DockerError as error:
        if error.status == _UNREACHABLE:
            raise ContainerEngineUnavailable(
                f"{failure}: the container engine no longer answers. Check that it is running."
            ) from error
        advice = _DISK_FULL if "no space left on device" in str(error.message) else ""
        raise BackendError(f"{failure}: {error.message}{advice}") from error
    except OSError as error:
        raise ContainerEngineUnavailable(
            f"{failure}: the connection to the container engine was lost ({error})."
        ) from error
    except (aiohttp.ClientError, *_INVALID_ANSWER) as error:
        raise ContainerEngineUnavailable(
            f"{failure}: the container engine sent an invalid answer ({_describe(error)}). "
            "Check that it is running."
        ) from error


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def http_status(error: BaseException | None) -> int:
    """Return the HTTP status of an engine's error, such as 404 or 409; 0 for any other error."""
    return int(getattr(error, "status", 0))
