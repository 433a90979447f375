"""Landlock: the second wall around files, and, on newer kernels, around abstract sockets and signals.

Access rights and structures: Linux's ``include/uapi/linux/landlock.h``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..runtime.linux import syscalls

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_SOCKETS, _SIGNALS = (
    0b01,
    0b10,
)  # what can be kept to the own domain: abstract unix sockets, signals
_BIND_TCP, _CONNECT_TCP = 1, 2


def abi() -> int:
    """Give the version of Landlock that this kernel offers; 0 when it has none or it is switched off."""
    try:
        return syscalls.syscall(syscalls.LANDLOCK_CREATE_RULESET, None, 0, 1, name="landlock")
    except OSError:
        return 0


def scopes(version: int) -> dict[str, Any]:
    """Give the part of a session's confinement that Landlock does: signals and abstract sockets end at it (ABI 6).

    Not files: the rules on them are for good, and a branch of a session has folders of its own, made later.
    """
    return {"landlock_abi": version, "landlock_scoped": _SOCKETS | _SIGNALS} if version >= 6 else {}


def _handled(version: int) -> int:
    rights = (1 << 13) - 1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        if version >= since:
            rights |= right
    return rights


def confinement(
    version: int,
    readable: Iterable[str],
    writable: Iterable[str],
    *,
    tcp: bool = True,
    signals: bool = False,
) -> dict[str, Any]:
    """Give the part of a cell's confinement that Landlock does; empty on a kernel without it.

    `tcp` false: refuse TCP altogether, where the kernel can (ABI 4). `signals`: let them out, which stay in a process
    namespace anyway, where the cell's first process is to hear one.
    """
    if version < 1:
        return {}
    every = _handled(version)
    rules = [(path, every & _READ) for path in readable] + [(path, every) for path in writable]
    return {
        "landlock_abi": version,
        "landlock_handled": every,
        "landlock_net": _BIND_TCP | _CONNECT_TCP if not tcp and version >= 4 else 0,
        "landlock_scoped": (_SOCKETS if signals else _SOCKETS | _SIGNALS) if version >= 6 else 0,
        "landlock_rules": rules,
    }
