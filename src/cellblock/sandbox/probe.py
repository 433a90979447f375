"""What this host offers to a sandbox, as a report; and what to do where it offers too little."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import BackendError
from ..runtime import bootstrap
from . import cgroups
from .setup import namespaces

_PACKAGE = Path(__file__).resolve().parent.parent
_PATIENCE = 60.0
_OPEN = "`--security-opt seccomp=unconfined --security-opt systempaths=unconfined`"  # a container that can hold a sandbox


@dataclass(frozen=True)
class Findings:
    """What was tried. An empty text means that it works; any other says what went wrong.

    namespaces     all namespaces, a root of one's own, and cells in it
    seccomp        a system call filter
    landlock       rules for files; `landlock_abi` is its version, 0 for none
    groups         where control groups with a memory limit can be made
    """

    namespaces: str
    seccomp: str
    landlock: str
    landlock_abi: int
    groups: cgroups.Found


@functools.cache
def probe() -> Findings:
    """Try everything, once for this process; takes some tenths of a second. Raises `BackendError`."""
    argv = [sys.executable, "-I", "-S", "-c", bootstrap.TRIALS, str(_PACKAGE)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_PATIENCE, check=True)
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise BackendError(f"This machine's facilities cannot be tried out: {error}") from error
    return Findings(**found, groups=cgroups.find())


def unavailable() -> str:
    """Give the reason why the full sandbox cannot be built here, with what to do; empty when it can."""
    found = probe()
    if found.namespaces:
        return f"Namespaces: {found.namespaces}. {namespace_advice()}"
    if found.seccomp:
        return f"Seccomp: {found.seccomp}. Use a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64."
    return ""


def namespace_advice() -> str:
    """Say what most likely forbids namespaces here, and how to allow them."""
    if namespaces.is_root_outside() and not namespaces.is_root():
        return "Start it as a plain user, or map more users into this user namespace."
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor forbids them to unconfined programs: as root, `sysctl kernel.apparmor_restrict_unprivileged_userns=0`,"
            " or give this Python a profile with `userns`."
        )
    if _setting("user/max_user_namespaces") == "0":
        return "They are switched off: as root, `sysctl user.max_user_namespaces=15000`."
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "They are switched off: as root, `sysctl kernel.unprivileged_userns_clone=1`."
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return f"This is a container, whose own walls forbid them: start it with {_OPEN}."
    return f"If this is a container, its own walls may forbid them ({_OPEN}); else look at user.max_user_namespaces."


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
