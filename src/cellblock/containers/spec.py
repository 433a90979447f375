"""How a container is to be: what callers may set, and what of it the engine is told. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, cast, get_args

from ..errors import BackendError
from ..limits import MIB, Limits
from .images import OnPull

WORK_DIR = "/workspace"
HOME = "/home/cell"
PACKAGES = "/opt/cellblock/site-packages"  # in images that were built for packages
# The first of these that the image has; the shell is what every image for this has anyway. $0 is the program's text.
START_PYTHON = 'for name in python3 python; do command -v "$name" >/dev/null && exec "$name" -u -c "$0"; done; exit 127'
# The first process: it waits, ends at once when it is asked to, and needs no program but the shell. What was left to it and
# ends would stay, and count as a process of the container, were it not heard of: `jobs` has the shell look at its children.
_FIRST = "trap 'exit 0' TERM; trap 'heard=1; jobs' CHLD; heard=1; while [ $heard ]; do heard=; read _; done"
_OURS_BYTES = (
    96 * MIB
)  # the cell server, the interpreter that blocks are forked from, and two that wait
_OURS_PROCESSES = 32
# gVisor's kernel is in the container's control groups itself. A process inside is several tasks there; if one is refused, or
# ended for want of memory, all of the container ends. So there is room, in which the watch of each block comes first.
_TASKS_EACH = 16
_SLACK_BYTES = 256 * MIB
_PERIOD = 100_000  # microseconds. Not the engine's own word for it, which no machine with fewer processors takes
_NO_PROCESSORS = (
    "Limits.processors cannot be held by this engine, which runs as a plain user and may make no control groups: leave it "
    "out, or use an engine of root's, or a machine with control groups of version 2."
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


Transfer = Literal["bind", "copy"]


class ContainerOptions(TypedDict, total=False):
    """How callers may have a container made; all of it can be left out.

    user            "uid:gid"; `None`: the caller, so that files in the work folder belong to the caller
    network         "none", which it is unless given, "bridge", "host", or a network of the engine
    environment     variables of the blocks
    ports           port inside -> port of this machine, on 127.0.0.1; `None` for any
    runtime         one of the engine's runtimes, such as gVisor's "runsc"
    read_only       nothing of the image can be changed, unless this is False: only /workspace, /tmp, the home and volumes
    wheels          a folder of wheels, or several, that packages are taken from; then no index is asked
    transfer        "bind": the work folder is shown inside. "copy": files are copied in and out, as remote engines need it
    create_kwargs   what else the engine is to be told when the container is made, in its own words
    on_pull         called with a `PullProgress` whenever the fetching of a missing image goes on; not part of configurations
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


def checked_options(given: ContainerOptions) -> dict[str, Any]:
    """Give all options, with defaults where nothing was given. Raises `ValueError`, `TypeError` for an unknown name."""
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


def checked_gifts(
    device_requests: Sequence[Any] | None,
    extra_volumes: Mapping[str, Mapping[str, str]] | None,
    extra_hosts: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Give what a container is given of the machine, under these names. Raises `ValueError`."""
    return {
        "device_requests": [device_request(item) for item in device_requests or ()],
        "extra_volumes": {
            str(source): dict(item) for source, item in (extra_volumes or {}).items()
        },
        "extra_hosts": dict(extra_hosts or {}),
    }


@dataclass(frozen=True, kw_only=True)
class ContainerSettings:
    """Describe a container; `config` gives what the engine is told.

    image           reference of the image
    user            "uid:gid", as which everything in it runs
    work_dir        the folder of the engine's machine that is shown as /workspace; `None`: a volume of its own
    network         "none", "bridge", "host", or the name of a network of the engine
    environment     variables beyond PATH, HOME and what the image sets
    ports           port inside -> port of this machine (on 127.0.0.1), `None` for any, or (address, port)
    volumes         source -> {"bind": path inside, "mode": "rw" or "ro"}
    hosts           name -> address, for its /etc/hosts
    devices         requests for devices, as the engine takes them
    runtime         name of one of the engine's runtimes; `None`: its default
    gvisor          that is gVisor's
    read_only       nothing but /workspace, /tmp, the home and volumes can be written
    has_own_home    the home belongs to the user; else, where an engine cannot say so, everybody inside can write there
    holds_limits    the engine's control groups hold memory and processes; else whoever starts processes in it has to
    auto_remove     the engine removes it when it ends
    labels          what says whose it is
    extra           anything more, as the engine takes it; what both name is taken from here
    """

    image: str
    user: str
    limits: Limits
    work_dir: str | None = None
    network: str = "none"
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    ports: Mapping[str, Any] = field(default_factory=dict[str, Any])
    volumes: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    hosts: Mapping[str, str] = field(default_factory=dict[str, str])
    devices: Sequence[Mapping[str, Any]] = ()
    runtime: str | None = None
    gvisor: bool = False
    read_only: bool = True
    has_own_home: bool = True
    holds_limits: bool = True
    auto_remove: bool = True
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def config(self) -> dict[str, Any]:
        """Give the body of the request that makes the container. Raises `BackendError` for what the engine cannot hold."""
        ports = {_port(name): _binding(value) for name, value in self.ports.items()}
        made: dict[str, Any] = {
            "Image": self.image,
            "Entrypoint": ["/bin/sh"],
            "Cmd": ["-c", _FIRST],
            "OpenStdin": True,  # the first process waits there, for what never comes
            "Tty": False,
            "User": self.user,
            "WorkingDir": WORK_DIR,
            "Env": [
                f"{name}={value}"
                for name, value in {**self._own_environment(), **self.environment}.items()
            ],
            "ExposedPorts": {name: {} for name in ports},
            "Labels": dict(self.labels),
            "HostConfig": self._host_config(ports),
        }
        if self.work_dir is None:
            made["Volumes"] = {WORK_DIR: {}}
        return _merged(made, self.extra)

    def _own_environment(self) -> dict[str, str]:
        # Packages that a block installs go into its home; Debian's pip wants to be told that this is meant.
        pip = {
            "PIP_USER": "1",
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            "PIP_NO_WARN_SCRIPT_LOCATION": "1",
        }
        return {
            "HOME": HOME,
            "USER": "cell",
            "LANG": "C.UTF-8",
            "PATH": f"{HOME}/.local/bin:{PACKAGES}/bin:{_PATH}",
            **pip,
        }

    def _host_config(self, ports: Mapping[str, Any]) -> dict[str, Any]:
        size = f",size={self.limits.tmp_bytes}" if self.limits.tmp_bytes else ""
        uid, _, gid = self.user.partition(":")
        owner = f",uid={uid},gid={gid or uid}" if self.has_own_home and uid.isdigit() else ""
        home = f"mode=700{owner}" if owner or uid == "0" else "mode=1777"
        host: dict[str, Any] = {
            "AutoRemove": self.auto_remove,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": self.read_only,
            "NetworkMode": self.network,
            "Tmpfs": {
                "/tmp": f"rw,exec,nosuid,nodev,mode=1777{size}",
                HOME: f"rw,exec,nosuid,nodev,{home}{size}",
            },
            "Binds": [
                f"{source}:{item['bind']}:{item.get('mode', 'rw')}"
                for source, item in self.volumes.items()
            ],
            "ExtraHosts": [f"{name}:{address}" for name, address in self.hosts.items()],
            "DeviceRequests": [dict(device) for device in self.devices],
            "PortBindings": dict(ports),
            **self._limits(),
        }
        if self.work_dir is not None:
            host["Mounts"] = [{"Type": "bind", "Source": self.work_dir, "Target": WORK_DIR}]
        if self.runtime is not None:
            host["Runtime"] = self.runtime
        return host

    def _limits(self) -> dict[str, Any]:
        limits, found = self.limits, dict[str, Any]()
        if limits.tmp_bytes is not None:
            found["ShmSize"] = limits.tmp_bytes
        if limits.processors is not None:
            if not self.holds_limits:
                raise BackendError(_NO_PROCESSORS)
            found |= {"CpuPeriod": _PERIOD, "CpuQuota": round(limits.processors * _PERIOD)}
        if limits.memory_bytes is not None and self.holds_limits:
            slack = limits.memory_bytes + _SLACK_BYTES if self.gvisor else 0
            found["Memory"] = found["MemorySwap"] = limits.memory_bytes + _OURS_BYTES + slack
        if limits.processes is not None and self.holds_limits:
            found["PidsLimit"] = (limits.processes + _OURS_PROCESSES) * (
                _TASKS_EACH if self.gvisor else 1
            )
        return found


def _port(name: object) -> str:
    """Give a port as the engine writes it: "8000/tcp"."""
    text = str(name)
    return text if "/" in text else f"{text}/tcp"


def _binding(value: Any) -> list[dict[str, str]]:
    """Give where a port of the container appears; on this machine alone, unless an address is named."""
    pair = cast(Sequence[Any], value) if isinstance(value, tuple | list) else ("127.0.0.1", value)
    address, port = pair
    return [{"HostIp": str(address), "HostPort": "" if port is None else str(port)}]


def _merged(made: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Lay `extra` over `made`, one inside the other where both have an object of that name."""
    result = dict(made)
    for name, value in extra.items():
        below = result.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _merged(cast(Mapping[str, Any], below), cast(Mapping[str, Any], value))
        result[name] = value
    return result


def device_request(value: Any) -> dict[str, Any]:
    """Give a request for devices as the engine takes it; `value` is one of the `docker` package's, or such an object itself.

    Raises `ValueError`. The names of either are accepted: `device_ids` as well as `DeviceIDs`.
    """
    if not isinstance(value, Mapping):
        raise ValueError(
            f"device_requests holds a DeviceRequest or a dict for each, not {value!r}."
        )
    items = cast(Mapping[str, Any], value).items()
    given = {str(name).replace("_", "").lower(): item for name, item in items}
    unknown = sorted(set(given) - set(_DEVICE))
    if unknown:
        raise ValueError(f"Unknown keys in device_requests: {', '.join(unknown)}.")
    return {_DEVICE[name]: item for name, item in given.items() if item is not None}


_DEVICE = {
    "driver": "Driver",
    "count": "Count",
    "deviceids": "DeviceIDs",
    "capabilities": "Capabilities",
    "options": "Options",
}
