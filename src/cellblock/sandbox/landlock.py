"""Landlock: a second protection of files and, on newer kernels, of abstract sockets and signals.

Access rights and structures: Linux's ``include/uapi/linux/landlock.h``.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..runtime.linux import syscalls
from ..runtime.spec import LandlockSpec

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 0b01, 0b10  # LANDLOCK_SCOPE_*
_BIND_TCP, _CONNECT_TCP = 1, 2


def abi_version() -> int:
    """Return the ABI version of Landlock in this kernel; 0 if it is missing or disabled."""
    try:
        return syscalls.syscall(syscalls.LANDLOCK_CREATE_RULESET, None, 0, 1, name="landlock")
    except OSError:
        return 0


def scopes(version: int, *, signals: bool = False) -> LandlockSpec:
    """Return the part of a session's confinement that Landlock does (ABI 6).

    Abstract sockets are limited to the session, and without `signals` these too. Files are not:
    rules on files are permanent, and a branch of a session gets folders of its own later.
    """
    scoped = _SCOPE_ABSTRACT_SOCKETS | (0 if signals else _SCOPE_SIGNALS)
    return LandlockSpec(version, scoped=scoped) if version >= 6 else LandlockSpec()


def _handled_rights(version: int) -> int:
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
) -> LandlockSpec:
    """Return the part of a cell's confinement that Landlock does; empty on a kernel without it.

    tcp       False refuses all TCP, if the kernel can (ABI 4)
    signals   allow signals to processes outside the cell; a process namespace already limits them,
              and the first process of the cell must receive one
    """
    if version < 1:
        return LandlockSpec()
    every = _handled_rights(version)
    rules = [(path, every & _READ) for path in readable] + [(path, every) for path in writable]
    scoped = _SCOPE_ABSTRACT_SOCKETS if signals else _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS
    return LandlockSpec(
        version,
        every,
        _BIND_TCP | _CONNECT_TCP if not tcp and version >= 4 else 0,
        scoped if version >= 6 else 0,
        tuple(rules),
    )
