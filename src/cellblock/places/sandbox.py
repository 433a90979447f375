"""The sandbox as a place: a root of its own, namespaces of its own, and nothing of the caller's but what was given."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from ..cell import boot, kernel
from ..errors import PlaceError, SandboxUnavailable
from ..limits import Limits
from ..policy import Mount, Policy
from ..sandbox import landlock, seccomp
from ..sandbox.probe import unavailable
from .base import PACKAGE, Connection, Place, start_server
from .enforcement import plan_groups, rlimits
from .interpreter import Interpreter

WORK_DIR = "/workspace"
HOME = "/home/cell"
ENVIRONMENT = "/opt/env"
_OURS = "/opt/cellblock"
_USER = 1000
_OUTER_USERS = 0x70000000  # far from anybody's: what root's cells are outside
TOP_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_TEMPORARY = ("/tmp", "/dev/shm")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# What programs look up there and what tells nothing about the caller.
ETC = (
    "alternatives", "ca-certificates", "crypto-policies", "debian_version", "fonts", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types", "nsswitch.conf", "os-release", "pki", "protocols",
    "services", "ssl/certs", "ssl/openssl.cnf", "timezone",
)  # fmt: skip
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/ptmx": f"{kernel.TERMINALS}/ptmx",
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

    work_dir      the folder that is shown as /workspace
    scratch       a folder of ours with `home` and `env` in it, shown as /home/cell and /opt/env
    packages      folders of packages to show under their own names, read-only
    preload       modules that are imported before any cell is forked
    sessions      have a server of live sessions, which bring their own work folder, home and environment
    delete        paths that the cell server removes when it ends, even if its owner was killed
    """

    work_dir: str
    scratch: str
    interpreter: Interpreter
    packages: tuple[str, ...]
    limits: Limits
    policy: Policy
    preload: tuple[str, ...] = ()
    delete: list[str] = field(default_factory=list[str])
    sessions: bool = False

    async def open(self) -> Connection:
        """Start the cell server. Raises `SandboxUnavailable` when this machine does not allow it."""
        box = self._box()
        groups = plan_groups(self.limits)
        try:
            return await start_server(boot.SANDBOX_SERVER, self._spec(box, groups), environment={})
        except PlaceError as error:
            raise SandboxUnavailable(await asyncio.to_thread(_report, str(error))) from error

    def _spec(self, box: dict[str, Any], groups: dict[str, Any] | None) -> dict[str, Any]:
        size = self.limits.tmp_bytes
        options = f"mode=1777,nr_inodes=200k{f',size={size}' if size else ''}"
        targets = [mount["target"] for mount in box["mounts"]]
        own = {"session_confinement": self._session_confinement(grouped=groups is not None)} if self.sessions else {}
        return {
            "sessions": self.sessions,
            "spares": 0 if self.sessions else 2,
            "zygote": {
                **own,
                "own_network": self.sessions and self.policy.network != "host",
                "namespaces": True,
                "farewell": bool(groups and groups["peak"]),  # it leaves no time to ask how much memory the block had
                "scripts": True,
                "tmpfs": [[path, options] for path in _TEMPORARY],
                "below_tmpfs": [path for path in targets if any(_is_below(path, top) for top in _TEMPORARY)],
                "cwd": WORK_DIR,
                "preload": list(self.preload),
                "filter_program": base64.b64encode(seccomp.zygote_program()).decode(),
                "confinement": self._confinement(grouped=groups is not None),
            },
            "limits": self.limits.to_dict(),
            "groups": groups,
            "delete": self.delete,
            "sandbox": box,
        }

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
        mounts, links = self._system()
        mounts += [_mount(folder, folder) for folder in self._own_prefixes()]
        mounts += [_mount(folder, folder, mapped=True) for folder in self.packages if os.path.isdir(folder)]
        mounts.append(_mount(str(PACKAGE / "cell"), f"{_OURS}/cell"))
        mounts += own_mounts(self.work_dir, self.scratch)
        mounts += [_given(mount, writable=False) for mount in self.policy.mounts(writable=False)]
        mounts += [_given(mount, writable=True) for mount in self.policy.mounts(writable=True)]
        if self.policy.network == "host":
            del files["/etc/hosts"]
            mounts += [_mount(path, path) for path in ("/etc/resolv.conf", "/etc/hosts") if os.path.exists(path)]
        return {
            "mounts": mounts,
            "folders": ["/proc", kernel.TERMINALS, "/tmp", "/dev/shm", "/run", "/var", "/root"],
            "links": {**_LINKS, **links},
            "files": files,
            "user": _USER,
            "outer_user": _OUTER_USERS + secrets.randbelow(1 << 24),
            "network": self.policy.network,
            "capabilities": kernel.NETWORK_CAPABILITIES if self.sessions else kernel.CELL_CAPABILITIES,
            "hostname": "cellblock",
            "argv": [f"{ENVIRONMENT}/bin/python", "-u", "-c", boot.ZYGOTE, _OURS],
            "environment": clean_environment(ENVIRONMENT, HOME, self.policy),
        }

    def _system(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        mounts, links = [_mount("/usr", "/usr")], dict[str, str]()
        for name in TOP_FOLDERS:
            if os.path.islink(f"/{name}"):
                links[f"/{name}"] = os.readlink(f"/{name}")
            elif os.path.isdir(f"/{name}"):
                mounts.append(_mount(f"/{name}", f"/{name}"))
        mounts += [_mount(f"/etc/{name}", f"/etc/{name}") for name in ETC if os.path.exists(f"/etc/{name}")]
        mounts += [_mount(f"/dev/{name}", f"/dev/{name}", writable=True, device=True) for name in DEVICES]
        return mounts, links

    def _own_prefixes(self) -> list[str]:
        """Give the interpreter's folders where the system's do not hold them already."""
        shown = ("/usr", *(f"/{name}" for name in TOP_FOLDERS))
        folders = {*self.interpreter.prefixes, os.path.dirname(os.path.dirname(self.interpreter.program))}
        folders = {folder for folder in folders if not any(_is_below(folder, top) for top in shown)}
        if "/" in folders:
            raise PlaceError(f"{self.interpreter.program} has / as its prefix: the sandbox would show everything.")
        return sorted(folder for folder in folders if not any(folder != top and _is_below(folder, top) for top in folders))


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
        environment |= dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"), _CERTIFICATES)
    return environment | dict(policy.environment)


def _report(error: str) -> str:
    return "\n".join(
        [
            f"The sandbox cannot be built here. {error}",
            unavailable() or "What it needs works when tried alone, so this is a fault of ours or a passing one.",
            "`cellblock doctor` shows what this machine offers. A weaker protection is never taken silently: name it with"
            " isolation='landlock', or use LocalCommandLineCodeExecutor without any.",
        ]
    )


def _is_below(path: str, top: str) -> bool:
    return os.path.commonpath([path, top]) == top


def _mount(
    source: str, target: str, *, writable: bool = False, own: bool = False, mapped: bool = False, device: bool = False
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


def own_mounts(work_dir: str, scratch: str) -> list[dict[str, Any]]:
    """Describe what is an executor's own: its work folder, and the home and the environment in `scratch`."""
    own = {work_dir: WORK_DIR, f"{scratch}/home": HOME, f"{scratch}/env": ENVIRONMENT}
    return [_mount(source, target, own=True) for source, target in own.items()]


def _given(mount: Mount, *, writable: bool) -> dict[str, Any]:
    if not os.path.exists(mount.source):
        raise PlaceError(f"The policy names {mount.source}, which does not exist.")
    return _mount(mount.source, mount.inside, writable=writable, mapped=True)
