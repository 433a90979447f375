"""The sandbox as a place: a root of its own, namespaces of its own, and nothing of the caller's but what was given."""

from __future__ import annotations

import asyncio
import base64
import glob
import os
import secrets
import socket
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..environments.interpreter import Interpreter, command_folders
from ..errors import BackendError, SandboxUnavailable
from ..limits import Limits
from ..policy import Policy
from ..runtime import bootstrap
from ..runtime.linux import syscalls
from ..sandbox import landlock, seccomp
from ..sandbox.probe import unavailable
from ..sandbox.setup.namespaces import OUTER_USERS
from .base import PACKAGE, Connection, Place, start_server
from .kernel_limits import plan_groups, rlimits

WORK_DIR = "/workspace"
HOME = "/home/cell"
ENVIRONMENT = "/opt/env"
_OURS = "/opt/cellblock"
_USER = 1000
TOP_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_TEMPORARY = ("/tmp", "/dev/shm")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# What the programs of /usr look up elsewhere, and what tells nothing about the caller.
_SETTINGS = (
    "/etc/alternatives", "/etc/ca-certificates", "/etc/crypto-policies", "/etc/debian_version", "/etc/fonts",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/localtime", "/etc/magic",
    "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/pki", "/etc/protocols", "/etc/services",
    "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/timezone",
    "/etc/ImageMagick-*", "/etc/R", "/etc/chromium.d", "/etc/ghostscript", "/etc/java*", "/etc/libreoffice",
    "/etc/octaverc", "/etc/php.d", "/etc/php.ini", "/etc/php/*/cli", "/etc/php/*/mods-available", "/etc/texmf",
    "/var/lib/ghostscript", "/var/lib/libreoffice", "/var/lib/texmf",
    "/sys/devices/system/cpu", "/sys/devices/system/node",
)  # fmt: skip
# Made empty; in the last one psutil looks for batteries.
_FOLDERS = [
    "/proc",
    syscalls.TERMINALS,
    "/tmp",
    "/dev/shm",
    "/run",
    "/var",
    "/root",
    "/sys/class/power_supply",
]
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/ptmx": f"{syscalls.TERMINALS}/ptmx",
    "/var/tmp": "/tmp",
    "/var/run": "/run",
}
_FILES = {
    "/etc/passwd": f"root:x:0:0::/root:/bin/sh\ncell:x:{_USER}:{_USER}::{HOME}:/bin/sh\n",
    "/etc/group": f"root:x:0:\ncell:x:{_USER}:\n",
    "/etc/hosts": "127.0.0.1 localhost cellblock\n::1 localhost\n",
    "/etc/hostname": "cellblock\n",
}


@dataclass
class SandboxPlace(Place):
    """Run cells behind walls.

    packages      folders of packages to show under their own names, read-only
    preload       modules that are imported before any cell is forked
    work_dir      the folder that is shown as /workspace
    scratch       a folder of ours with `home` and `env` in it, shown as /home/cell and /opt/env
    delete        paths that the cell server removes when it ends, even if its owner was killed
    door          the server's end of a socket over which guests come; without it, it is a server of live sessions

    Guests and sessions bring a work folder, home and environment of their own, and never see those named here.
    """

    interpreter: Interpreter
    packages: tuple[str, ...]
    limits: Limits
    policy: Policy
    preload: tuple[str, ...] = ()
    work_dir: str = ""
    scratch: str = ""
    delete: list[str] = field(default_factory=list[str])
    door: socket.socket | None = None

    async def open(self) -> Connection:
        """Start the cell server. Raises `SandboxUnavailable` when this machine does not allow it."""
        box: dict[str, Any] = {
            **self.settings["sandbox"],
            "outer_user": secrets.choice(OUTER_USERS),
        }
        box["mounts"] = [*box["mounts"], *own_mounts(self.work_dir, self.scratch)]
        spec = {**self.settings, "sandbox": box, "delete": self.delete, **self._use()}
        inherited = () if self.door is None else (self.door.fileno(),)
        try:
            return await start_server(
                bootstrap.SANDBOX_SERVER, spec, environment={}, inherited=inherited
            )
        except BackendError as error:
            raise await unavailable_here(error) from error

    @cached_property
    def settings(self) -> dict[str, Any]:
        """All that a server is told, but whose it is and what for: the same for places that are the same."""
        box = self._box()
        groups = plan_groups(self.limits)
        size = self.limits.tmp_bytes
        options = f"mode=1777,nr_inodes=200k{f',size={size}' if size else ''}"
        targets = [mount["target"] for mount in box["mounts"]]
        return {
            "zygote": {
                "namespaces": True,
                "farewell": bool(
                    groups and groups["peak"]
                ),  # it leaves no time to ask how much memory the block had
                "scripts": True,
                "tmpfs": [[path, options] for path in _TEMPORARY],
                "below_tmpfs": [
                    path for path in targets if any(_is_below(path, top) for top in _TEMPORARY)
                ],
                "cwd": WORK_DIR,
                "preload": list(self.preload),
                "filter_program": base64.b64encode(seccomp.zygote_program()).decode(),
                "confinement": self._confinement(grouped=groups is not None),
            },
            "limits": self.limits.to_dict(),
            "groups": groups,
            "sandbox": box,
        }

    def _use(self) -> dict[str, Any]:
        """Give what differs between a server of guests and one of live sessions."""
        zygote: dict[str, Any] = self.settings["zygote"]
        is_offline = self.policy.network == "none"
        if self.door is not None:
            return {
                "door": self.door.fileno(),
                "zygote": {**zygote, "own_network": "guest" if is_offline else ""},
            }
        confinement = self._session_confinement(grouped=self.settings["groups"] is not None)
        own = {"session_confinement": confinement, "own_network": "session" if is_offline else ""}
        return {"sessions": True, "spares": 0, "zygote": {**zygote, **own}}

    def _confinement(self, *, grouped: bool) -> dict[str, Any]:
        writable = [WORK_DIR, HOME, ENVIRONMENT, "/tmp", "/dev", "/proc"]
        writable += [mount.inside for mount in self.policy.mounts(writable=True)]
        return {
            "rlimits": rlimits(self.limits, grouped=grouped),
            "filter_program": base64.b64encode(seccomp.cell_program()).decode(),
            "drop": True,
            **landlock.confinement(landlock.abi(), ["/"], writable, signals=True),
        }

    def _session_confinement(self, *, grouped: bool) -> dict[str, Any]:
        # CPU seconds are for each block, and a session's process lives for many: the server watches them.
        limits = replace(self.limits, cpu_seconds=None)
        return {
            "rlimits": rlimits(limits, grouped=grouped),
            "filter_program": base64.b64encode(seccomp.session_program()).decode(),
            "drop": True,
            **landlock.scopes(landlock.abi()),
        }

    def _box(self) -> dict[str, Any]:
        files = dict(_FILES)
        mounts, links = self._mounts()
        if self.policy.network == "host":
            del files["/etc/hosts"]
        return {
            "mounts": mounts,
            "folders": _FOLDERS,
            "links": {**_LINKS, **links},
            "files": files,
            "user": _USER,
            "network": self.policy.network,
            "capabilities": syscalls.NETWORK_CAPABILITIES,
            "hostname": "cellblock",
            "argv": [f"{ENVIRONMENT}/bin/python", "-u", "-c", bootstrap.ZYGOTE, _OURS],
            "environment": clean_environment(ENVIRONMENT, HOME, self.policy),
        }

    def _mounts(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Describe all that is shown besides what is an executor's own, and the links to it."""
        mounts, links = self._system()
        mounts += [_mount(folder, folder) for folder in self._own_prefixes()]
        mounts += [
            _mount(folder, folder, mapped=True)
            for folder in self._package_folders()
            if os.path.isdir(folder)
        ]
        mounts.append(_mount(str(PACKAGE / "runtime"), f"{_OURS}/runtime"))
        mounts += [mount for mount in _given(self.policy) if not _is_own(mount)]
        if self.policy.network == "host":
            mounts += [
                _mount(path, path)
                for path in ("/etc/resolv.conf", "/etc/hosts")
                if os.path.exists(path)
            ]
        return mounts, links

    def _package_folders(self) -> list[str]:
        """Give the folders of packages and, where these have some of their own, of commands."""
        return [*self.packages, *command_folders(self.packages, self.interpreter)]

    def _system(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        mounts, links = [_mount("/usr", "/usr")], dict[str, str]()
        for name in TOP_FOLDERS:
            if os.path.islink(f"/{name}"):
                links[f"/{name}"] = os.readlink(f"/{name}")
            elif os.path.isdir(f"/{name}"):
                mounts.append(_mount(f"/{name}", f"/{name}"))
        mounts += [_mount(path, path) for path in settings_of_programs()]
        # Devices can be written on a mount that is read-only; their owner, rights and times, which are the machine's, cannot.
        mounts += [_mount(f"/dev/{name}", f"/dev/{name}", device=True) for name in DEVICES]
        return mounts, links

    def _own_prefixes(self) -> list[str]:
        """Give the interpreter's folders where the system's do not hold them already."""
        shown = ("/usr", *(f"/{name}" for name in TOP_FOLDERS))
        folders = {
            *self.interpreter.prefixes,
            os.path.dirname(os.path.dirname(self.interpreter.program)),
        }
        folders = {folder for folder in folders if not any(_is_below(folder, top) for top in shown)}
        if "/" in folders:
            raise BackendError(
                f"{self.interpreter.program} has / as its prefix: the sandbox would show everything."
            )
        return sorted(
            folder
            for folder in folders
            if not any(folder != top and _is_below(folder, top) for top in folders)
        )


def settings_of_programs() -> list[str]:
    """Give the files and folders that running code needs besides /usr: what this machine has of them."""
    return [
        path for pattern in _SETTINGS for path in sorted(glob.glob(pattern)) if os.path.exists(path)
    ]


def clean_environment(env: str, home: str, policy: Policy) -> dict[str, str]:
    """Give all the variables that blocks see: nothing of the caller's but what the policy names."""
    environment = {
        "PATH": f"{env}/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": home,
        "USER": "cell",
        "LANG": "C.UTF-8",
        "VIRTUAL_ENV": env,
        "PYTHONUNBUFFERED": "1",
    }
    if policy.network == "host" and os.path.exists(_CERTIFICATES):
        # Python's HTTP clients bring certificates of their own, which do not hold an organisation's.
        environment |= dict.fromkeys(
            ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"), _CERTIFICATES
        )
    return environment | dict(policy.environment)


async def unavailable_here(error: BackendError) -> SandboxUnavailable:
    """Make of `error` one that says what this machine lacks, and what can be done about it."""
    return SandboxUnavailable(await asyncio.to_thread(_report, str(error)))


def _report(error: str) -> str:
    return "\n".join(
        [
            f"The sandbox cannot be built here. {error}",
            unavailable()
            or "What it needs works when tried alone, so this is a fault of ours or a passing one.",
            "`cellblock doctor` shows what this machine offers. A weaker protection is never taken silently: name it with"
            " isolation='landlock', or use LocalCommandLineCodeExecutor without any.",
        ]
    )


def _is_below(path: str, top: str) -> bool:
    return os.path.commonpath([path, top]) == top


def _mount(
    source: str,
    target: str,
    *,
    writable: bool = False,
    own: bool = False,
    mapped: bool = False,
    device: bool = False,
) -> dict[str, Any]:
    """Describe one mount. `own` folders are writable, and ours to give away; `mapped`: shown as the cell's user's."""
    return {
        "source": os.path.realpath(source),
        "target": target,
        "writable": writable or own,
        "own": own,
        "mapped": mapped or own,
        "device": device,
    }


def own_mounts(work_dir: str, scratch: str, policy: Policy | None = None) -> list[dict[str, Any]]:
    """Describe what is an executor's own: its work folder, the home and the environment in `scratch`, and all below."""
    given = _given(policy) if policy is not None else []
    own = {work_dir: WORK_DIR, f"{scratch}/home": HOME, f"{scratch}/env": ENVIRONMENT}
    mounts = [_mount(source, target, own=True) for source, target in own.items()]
    # What the policy shows in the place of a folder above it hides it.
    hidden = [mount["target"] for mount in given if not _is_own(mount)]
    mounts = [
        mount for mount in mounts if not any(_is_below(mount["target"], top) for top in hidden)
    ]
    return mounts + [mount for mount in given if _is_own(mount)]


def _is_own(mount: dict[str, Any]) -> bool:
    return any(_is_below(mount["target"], top) for top in (WORK_DIR, HOME, ENVIRONMENT))


def _given(policy: Policy) -> list[dict[str, Any]]:
    """Describe what the policy gives. Raises `BackendError`."""
    mounts = [
        (mount, writable)
        for writable in (False, True)
        for mount in policy.mounts(writable=writable)
    ]
    for mount, _ in mounts:
        if not os.path.exists(mount.source):
            raise BackendError(f"The policy names {mount.source}, which does not exist.")
    return [
        _mount(mount.source, mount.inside, writable=writable, mapped=True)
        for mount, writable in mounts
    ]
