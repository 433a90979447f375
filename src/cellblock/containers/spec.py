"""ContainerSpec: the options of a container, and the request body that creates it. No I/O."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, cast, get_args

from ..errors import BackendError
from ..limits import MIB, Limits
from . import seccomp_profile
from .images import OnPull

WORK_DIR = "/workspace"
HOME = "/home/cell"
PACKAGES_DIR = "/opt/cellblock/site-packages"  # in images that were built for packages
# Run the program text $0 by the first Python that the image has.
START_PYTHON = (
    "for name in python3 python; do "
    'command -v "$name" >/dev/null && exec "$name" -u -c "$0"; done; exit 127'
)
# Run the program $0 in the same way, but exit if no system call filter is in force.
NO_FILTER_STATUS = 78
START_PYTHON_FILTERED = (
    'while read -r name value; do [ "$name $value" = "Seccomp: 0" ] && '
    f"exit {NO_FILTER_STATUS}; done < /proc/self/status; {START_PYTHON}"
)
# Process 1: it waits, exits on SIGTERM, and needs only a shell. `jobs` makes the shell reap its
# children; zombies would count as processes of the container.
_INIT_SCRIPT = (
    "trap 'exit 0' TERM; trap 'signalled=1; jobs' CHLD; signalled=1; "
    "while [ $signalled ]; do signalled=; read _; done"
)
_OVERHEAD_BYTES = 96 * MIB  # the runtime server, the zygote, and two waiting processes
_OVERHEAD_PROCESSES = 32
# Of the memory, for files in each folder that is in memory: three quarters in sum. Packages of
# blocks go to the home.
_HOME_SHARE, _TMP_SHARE, _SHM_SHARE = 3 / 8, 2 / 8, 1 / 8
# gVisor's own kernel runs in the container's control groups, where one process inside is several
# tasks. If the kernel is refused a task or memory, the whole container dies. The headroom lets the
# limits of a block apply first.
_GVISOR_TASKS_PER_PROCESS = 16
_GVISOR_HEADROOM_BYTES = 256 * MIB
# Microseconds. Not NanoCpus: the engine refuses it if the host has fewer CPUs.
# What Docker makes read-only in any case.
_READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_CPU_PERIOD = 100_000
_NO_CPU_LIMIT = (
    "This container engine cannot enforce Limits.processors: it is rootless and may not create "
    "control groups. Leave the limit out, use an engine that runs as root, or a host with "
    "control groups version 2."
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


Transfer = Literal["bind", "copy"]


class ContainerOptions(TypedDict, total=False):
    """Options of a container that callers can set. All of them are optional.

    user            "uid:gid"; None: the caller, so that the caller owns the files of the blocks
    network         "none" (the default), "bridge", "host", or the name of a network of the engine
    environment     environment variables of the blocks
    ports           container port -> host port on 127.0.0.1; None as the host port picks a free one
    runtime         a runtime of the engine, such as "runsc" (gVisor)
    read_only       True (the default): only /workspace, /tmp, the home and volumes can be written
    wheels          a folder of wheels, or several, to install packages from instead of an index
    transfer        "bind": mount the work folder. "copy": copy files in and out, for remote engines
    create_kwargs   additional entries for the engine's request to create the container
    on_pull         called with a `PullProgress` while a missing image is pulled; never saved
    """

    user: str | None
    network: str
    environment: Mapping[str, str] | None
    ports: Mapping[int, Any] | Mapping[str, Any] | None
    runtime: str | None
    read_only: bool
    wheels: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    transfer: Transfer
    create_kwargs: Mapping[str, Any] | None
    on_pull: OnPull | None


def validate_options(given: ContainerOptions) -> dict[str, Any]:
    """Return all options, with defaults for those that are missing.

    Raise `TypeError` for an unknown name, `ValueError` for a wrong value.
    """
    if unknown := sorted(set(given) - set(ContainerOptions.__annotations__)):
        raise TypeError(f"Unknown arguments: {', '.join(unknown)}.")
    read_only, network = given.get("read_only", True), given.get("network", "none")
    if not isinstance(read_only, bool):  # pyright: ignore[reportUnnecessaryIsInstance] - callers are not all typed
        raise ValueError(f"read_only must be True or False, not {read_only!r}.")
    if not isinstance(network, str) or not network:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"network must be 'none', 'bridge', 'host' or the name of a network, not {network!r}."
        )
    wheels = given.get("wheels", ())
    if (transfer := given.get("transfer", "bind")) not in get_args(Transfer):
        raise ValueError(
            f"transfer must be one of {', '.join(get_args(Transfer))}, not {transfer!r}."
        )
    return {
        "user": given.get("user"),
        "transfer": transfer,
        "network": network,
        "environment": {
            str(name): str(value) for name, value in (given.get("environment") or {}).items()
        },
        "ports": {str(name): value for name, value in (given.get("ports") or {}).items()},
        "runtime": given.get("runtime"),
        "read_only": read_only,
        "on_pull": given.get("on_pull"),
        "wheels": [
            os.fspath(folder)
            for folder in ([wheels] if isinstance(wheels, str | os.PathLike) else wheels)
        ],
        "create_kwargs": dict(given.get("create_kwargs") or {}),
    }


def validate_resources(
    device_requests: Sequence[Any] | None,
    extra_volumes: Mapping[str, Mapping[str, str]] | None,
    extra_hosts: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Return the resources of the host that a container gets. Raise `ValueError` for wrong ones."""
    return {
        "device_requests": [device_request(item) for item in device_requests or ()],
        "extra_volumes": {
            str(source): dict(item) for source, item in (extra_volumes or {}).items()
        },
        "extra_hosts": dict(extra_hosts or {}),
    }


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """The full description of a container.

    image           reference of the image
    user            "uid:gid" of every process in the container
    work_dir        folder on the engine's host to mount as /workspace; None: an anonymous volume
    network         "none", "bridge", "host", or the name of a network of the engine
    environment     variables in addition to PATH, HOME and those of the image
    ports           container port -> host port on 127.0.0.1, None: a free one, or (address, port)
    protected       paths in the work folder to bind-mount in place, and whether they are writable
    volumes         source -> {"bind": path in the container, "mode": "rw" or "ro"}
    hosts           name -> address, for /etc/hosts
    devices         DeviceRequests, as the engine takes them
    runtime         name of a runtime of the engine; None: its default
    gvisor          whether that runtime is gVisor
    read_only       only /workspace, /tmp, the home and volumes can be written
    private_home    the home belongs to `user`; False, where engines cannot do that: all can write
    enforces_limits the engine limits memory and processes; otherwise the runtime must, by rlimits
    auto_remove     the engine removes the container when it exits
    labels          labels of the container
    extra           further entries of the request body, which override those above
    """

    image: str
    user: str
    limits: Limits
    work_dir: str | None = None
    network: str = "none"
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    ports: Mapping[str, Any] = field(default_factory=dict[str, Any])
    protected: Sequence[tuple[str, bool]] = ()
    volumes: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    hosts: Mapping[str, str] = field(default_factory=dict[str, str])
    devices: Sequence[Mapping[str, Any]] = ()
    runtime: str | None = None
    gvisor: bool = False
    read_only: bool = True
    private_home: bool = True
    enforces_limits: bool = True
    auto_remove: bool = True
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def has_filter(self) -> bool:
        """Whether the engine has to enforce Cellblock's system call filter. gVisor ignores it."""
        return not self.gvisor and not seccomp_profile.is_replaced(self.extra)

    def create_body(self, seccomp: str) -> dict[str, Any]:
        """Return the body of the engine's create request.

        `seccomp` is the system call filter, as the engine takes it. Raise `BackendError` for a
        limit that the engine cannot enforce.
        """
        ports = {
            _port_with_protocol(name): _port_binding(value) for name, value in self.ports.items()
        }
        body: dict[str, Any] = {
            "Image": self.image,
            "Entrypoint": ["/bin/sh"],
            "Cmd": ["-c", _INIT_SCRIPT],
            "OpenStdin": True,  # process 1 waits by reading from it; nothing is ever written
            "Tty": False,
            "User": self.user,
            "WorkingDir": WORK_DIR,
            "Env": [
                f"{name}={value}"
                for name, value in {**self._default_environment(), **self.environment}.items()
            ],
            "ExposedPorts": {name: {} for name in ports},
            "Labels": dict(self.labels),
            "HostConfig": self._host_config(ports, seccomp),
        }
        if self.work_dir is None:
            body["Volumes"] = {WORK_DIR: {}}
        return _deep_merge(body, self.extra)

    def _default_environment(self) -> dict[str, str]:
        # pip installs a block's packages into the home; Debian's pip refuses that without the
        # second one.
        pip = {
            "PIP_USER": "1",
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            "PIP_NO_WARN_SCRIPT_LOCATION": "1",
        }
        return {
            "HOME": HOME,
            "USER": "cell",
            "LANG": "C.UTF-8",
            "PATH": f"{HOME}/.local/bin:{PACKAGES_DIR}/bin:{_PATH}",
            **pip,
        }

    def _host_config(self, ports: Mapping[str, Any], seccomp: str) -> dict[str, Any]:
        uid, _, gid = self.user.partition(":")
        owner = f",uid={uid},gid={gid or uid}" if self.private_home and uid.isdigit() else ""
        home = f"mode=700{owner}" if owner or uid == "0" else "mode=1777"
        host: dict[str, Any] = {
            "AutoRemove": self.auto_remove,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp}"],
            "ReadonlyRootfs": self.read_only,
            "NetworkMode": self.network,
            "Tmpfs": {
                "/tmp": f"rw,exec,nosuid,nodev,mode=1777{self._size_option(_TMP_SHARE)}",
                HOME: f"rw,exec,nosuid,nodev,{home}{self._size_option(_HOME_SHARE)}",
            },
            "Binds": [
                f"{source}:{item['bind']}:{item.get('mode', 'rw')}"
                for source, item in self.volumes.items()
            ],
            "ExtraHosts": [f"{name}:{address}" for name, address in self.hosts.items()],
            "DeviceRequests": [dict(device) for device in self.devices],
            "PortBindings": dict(ports),
            **self._resource_limits(),
        }
        if self.user.partition(":")[0] == "0":  # root could remove /dev/null for all later blocks
            host["ReadonlyPaths"] = [*_READ_ONLY_PATHS, "/dev"]
        if self.work_dir is not None:
            host["Mounts"] = [
                {"Type": "bind", "Source": self.work_dir, "Target": WORK_DIR},
                *(
                    {
                        "Type": "bind",
                        "Source": f"{self.work_dir}/{path}",
                        "Target": f"{WORK_DIR}/{path}",
                        "ReadOnly": not is_writable,
                    }
                    for path, is_writable in self.protected
                ),
            ]
        if self.runtime is not None:
            host["Runtime"] = self.runtime
        return host

    def _folder_bytes(self, share: float) -> int | None:
        """Return the size of a folder in memory, of which files may hold a `share`."""
        memory = None if self.limits.memory_bytes is None else int(self.limits.memory_bytes * share)
        sizes = [size for size in (memory, self.limits.tmp_bytes) if size is not None]
        return min(sizes, default=None)

    def _size_option(self, share: float) -> str:
        size = self._folder_bytes(share)
        return "" if size is None else f",size={size}"

    def _resource_limits(self) -> dict[str, Any]:
        limits, entries = self.limits, dict[str, Any]()
        if (size := self._folder_bytes(_SHM_SHARE)) is not None:
            entries["ShmSize"] = size
        if limits.processors is not None:
            if not self.enforces_limits:
                raise BackendError(_NO_CPU_LIMIT)
            entries |= {
                "CpuPeriod": _CPU_PERIOD,
                "CpuQuota": round(limits.processors * _CPU_PERIOD),
            }
        if limits.memory_bytes is not None and self.enforces_limits:
            headroom = limits.memory_bytes + _GVISOR_HEADROOM_BYTES if self.gvisor else 0
            memory = limits.memory_bytes + _OVERHEAD_BYTES + headroom
            entries["Memory"] = entries["MemorySwap"] = memory
        if limits.processes is not None and self.enforces_limits:
            entries["PidsLimit"] = (limits.processes + _OVERHEAD_PROCESSES) * (
                _GVISOR_TASKS_PER_PROCESS if self.gvisor else 1
            )
        return entries


def _port_with_protocol(name: object) -> str:
    """Return a port in the engine's notation: "8000/tcp"."""
    text = str(name)
    return text if "/" in text else f"{text}/tcp"


def _port_binding(value: Any) -> list[dict[str, str]]:
    """Return the engine's PortBindings entry for a port; the default address is 127.0.0.1."""
    pair = cast(Sequence[Any], value) if isinstance(value, tuple | list) else ("127.0.0.1", value)
    address, port = pair
    return [{"HostIp": str(address), "HostPort": "" if port is None else str(port)}]


def _deep_merge(base: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `extra`; objects under the same name are merged recursively."""
    result = dict(base)
    for name, value in extra.items():
        existing = result.get(name)
        if isinstance(existing, Mapping) and isinstance(value, Mapping):
            value = _deep_merge(cast(Mapping[str, Any], existing), cast(Mapping[str, Any], value))
        result[name] = value
    return result


def device_request(value: Any) -> dict[str, Any]:
    """Return a DeviceRequest as the engine takes it.

    `value` is a `docker.types.DeviceRequest` or a mapping; both `device_ids` and `DeviceIDs` are
    accepted. Raise `ValueError` for anything else.
    """
    if not isinstance(value, Mapping):
        raise ValueError(
            f"device_requests must hold DeviceRequest objects or dictionaries, not {value!r}."
        )
    items = cast(Mapping[str, Any], value).items()
    given = {str(name).replace("_", "").lower(): item for name, item in items}
    unknown = sorted(set(given) - set(_DEVICE_KEYS))
    if unknown:
        raise ValueError(f"Unknown keys in device_requests: {', '.join(unknown)}.")
    return {_DEVICE_KEYS[name]: item for name, item in given.items() if item is not None}


_DEVICE_KEYS = {
    "driver": "Driver",
    "count": "Count",
    "deviceids": "DeviceIDs",
    "capabilities": "Capabilities",
    "options": "Options",
}
