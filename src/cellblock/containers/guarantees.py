"""What the executors that run blocks in containers guarantee, property by property.

Functions without effects: settings in, statements out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..limits import Limits
from ..sandbox.guarantees import Guarantee
from .client import EngineClient

# Entries of HostConfig that give a container rights which it does not have otherwise.
_RIGHTS = ("CapAdd", "CapDrop", "Privileged", "SecurityOpt")
_USE_SANDBOX = "SandboxCommandLineCodeExecutor separates blocks."


@dataclass(frozen=True, kw_only=True)
class ContainerSettings:
    """The settings of a container that guarantees depend on.

    folders         the mounts
    variables       names of environment variables that the caller gives
    filters_blocks  whether the runtime server filters the system calls of blocks where the engine
                    does not, in images with Python
    client          the engine; None: not known before the start
    For the others see `ContainerOptions`.
    """

    limits: Limits
    network: str
    read_only: bool
    folders: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    create_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    runtime: str | None = None
    filters_blocks: bool = True
    client: EngineClient | None = None

    @property
    def is_gvisor(self) -> bool:
        """Whether the container runs on gVisor's kernel."""
        if self.client is None:
            return "runsc" in (self.runtime or "")
        return self.client.is_gvisor(self.runtime)


def container_guarantees(settings: ContainerSettings) -> tuple[Guarantee, ...]:
    """Return what a container with these settings guarantees."""
    image = "the image, read-only" if settings.read_only else "a writable copy of the image"
    return (
        Guarantee(
            "files",
            "enforced",
            f"mount namespace of the container: {', '.join((image, *settings.folders))}",
        ),
        _network(settings),
        Guarantee(
            "processes",
            "partly",
            "process namespace of the container; blocks that share it can signal each other",
            _USE_SANDBOX,
        ),
        _memory(settings),
        _cpu(settings.limits),
        _disk(settings.limits),
        _kernel_surface(settings),
        _secrets(settings),
    )


def _network(settings: ContainerSettings) -> Guarantee:
    if settings.network == "none":
        return Guarantee("network", "enforced", "network namespace with only its own loopback")
    return Guarantee(
        "network",
        "given by policy",
        f"network={settings.network!r} gives the container that network",
        "Leave network out.",
    )


def _memory(settings: ContainerSettings) -> Guarantee:
    if settings.limits.memory_bytes is None:
        return Guarantee("memory", "off", "no limit is set", "Set Limits.memory_bytes.")
    if settings.client is None:
        return Guarantee(
            "memory",
            "partly",
            "control group of the container, where the engine has control groups",
            "Start the executor, and ask again.",
        )
    if settings.client.enforces_limits:
        return Guarantee("memory", "enforced", "control group of the container")
    return Guarantee(
        "memory",
        "partly",
        "checked every 50 ms (in images without Python: RLIMIT_DATA for each process); the engine "
        "has no control groups",
        "Use an engine that runs as root, or control groups of version 2.",
    )


def _cpu(limits: Limits) -> Guarantee:
    share = "; processors by the engine's control group" if limits.processors is not None else ""
    if limits.cpu_seconds is None:
        return Guarantee("cpu", "partly", f"only wall time{share}", "Set Limits.cpu_seconds.")
    return Guarantee("cpu", "partly", f"wall time, and RLIMIT_CPU for each process{share}")


def _disk(limits: Limits) -> Guarantee:
    if limits.file_bytes is None and limits.written_bytes is None:
        return Guarantee(
            "disk", "off", "no limit is set", "Set Limits.file_bytes and written_bytes."
        )
    return Guarantee(
        "disk",
        "partly",
        "RLIMIT_FSIZE for each file; other limits are checked from time to time",
        "Use a work_dir on a file system of limited size.",
    )


def _kernel_surface(settings: ContainerSettings) -> Guarantee:
    rights = settings.create_kwargs.get("HostConfig", {})
    if given := [name for name in _RIGHTS if name in rights]:
        return Guarantee(
            "kernel surface",
            "given by policy",
            f"create_kwargs replace our settings of {', '.join(given)}",
            "Leave them out of create_kwargs.",
        )
    if not settings.is_gvisor:
        return Guarantee(
            "kernel surface",
            "enforced",
            "the sandbox's seccomp filter, set by the engine; no capabilities, no new privileges",
        )
    return Guarantee(
        "kernel surface",
        "partly",
        "gVisor's kernel, no capabilities; gVisor ignores the engine's filter"
        + (", so the runtime filters blocks in images with Python" * settings.filters_blocks),
        "Use the engine's default runtime for a filter around the whole container.",
    )


def _secrets(settings: ContainerSettings) -> Guarantee:
    if settings.variables:
        return Guarantee(
            "secrets",
            "given by policy",
            f"your options give the variables {', '.join(settings.variables)}",
            "Leave out what blocks do not need.",
        )
    return Guarantee(
        "secrets",
        "enforced",
        "the image's environment and files, and nothing of yours but the folders that are mounted",
    )
