"""What this machine offers to a sandbox, and what to do if it offers too little."""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..errors import BackendError
from ..runtime import bootstrap
from ..runtime.spec import SubIds
from . import cgroups
from .setup import namespaces
from .setup.sub_ids import own_sub_ids

_PACKAGE = Path(__file__).resolve().parent.parent
_TIMEOUT_SECONDS = 60.0
# Options with which a container can run a sandbox.
_CONTAINER_OPTIONS = "`--security-opt seccomp=unconfined --security-opt systempaths=unconfined`"


@dataclass(frozen=True)
class Findings:
    """What works on this machine. An empty string means that it works; else it says what failed.

    namespaces     all namespaces, a separate root, and cells in it
    seccomp        a seccomp filter
    landlock       rules for files; `landlock_abi` is the version, 0 for none
    cgroups        where control groups with a memory limit can be created
    users          several users in one sandbox
    """

    namespaces: str
    seccomp: str
    landlock: str
    landlock_abi: int
    cgroups: cgroups.CgroupSupport
    users: str = ""


@functools.cache
def probe() -> Findings:
    """Test everything. The first call in a process takes a few tenths of a second.

    Raise `BackendError`.
    """
    argv = [sys.executable, "-I", "-S", "-c", bootstrap.SANDBOX_CHECKS, str(_PACKAGE)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_SECONDS, check=True)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise BackendError(f"The features of this machine cannot be tested: {error}") from error
    return Findings(**found, cgroups=cgroups.find_cgroups())


def counts_processes_by_namespace() -> bool:
    """Return True if the kernel counts the processes of a user in each user namespace apart.

    Linux does so since 5.14; see RLIMIT_NPROC in getrlimit(2).
    """
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return found is not None and (int(found[1]), int(found[2])) >= (5, 14)


def find_sub_ids() -> SubIds | str:
    """Return the further users that a sandbox can have, or why there are none and what to do.

    The first call in a process takes a few tenths of a second.
    """
    if not counts_processes_by_namespace():
        return "this kernel does not limit the processes of several users together: use Linux 5.14"
    try:
        return probe().users or own_sub_ids()
    except (BackendError, OSError) as error:
        return str(error)


def is_in_memory(folder: Path | None) -> bool:
    """Return True if `folder`, by default a temporary one, is on a filesystem in memory."""
    try:
        device = os.stat(folder or tempfile.gettempdir()).st_dev
    except OSError:  # it was removed
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", errors="replace") as lines:
        mounts = [line.split() for line in lines]
    types = [mount[mount.index("-") + 1] for mount in mounts if mount[2] == number]
    return types[:1] in (["tmpfs"], ["ramfs"])


def unavailable_reason() -> str:
    """Return why the full sandbox does not work here and what to do; "" if it works."""
    found = probe()
    if found.namespaces:
        return f"Namespaces: {found.namespaces}. {namespace_advice()}"
    if found.seccomp:
        return (
            f"Seccomp: {found.seccomp}. "
            "Use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64."
        )
    return ""


def namespace_advice() -> str:
    """Return what most likely forbids namespaces here, and how to allow them."""
    if namespaces.is_host_root() and not namespaces.can_use_outer_users():
        return "Run as an unprivileged user, or map more users into this user namespace."
    if _read_sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor forbids them to unconfined programs. As root, run "
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`, "
            "or give this Python a profile with `userns`."
        )
    if _read_sysctl("user/max_user_namespaces") == "0":
        return "They are disabled. As root, run `sysctl user.max_user_namespaces=15000`."
    if _read_sysctl("kernel/unprivileged_userns_clone") == "0":
        return "They are disabled. As root, run `sysctl kernel.unprivileged_userns_clone=1`."
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return f"This container forbids them. Start it with {_CONTAINER_OPTIONS}."
    return (
        f"If this is a container, start it with {_CONTAINER_OPTIONS}. "
        "Otherwise check `sysctl user.max_user_namespaces`."
    )


def _read_sysctl(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
