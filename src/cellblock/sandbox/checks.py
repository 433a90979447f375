"""Test what this machine allows, by doing it in child processes.

Runs in a separate process, without threads.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable

from ..runtime.cell.confinement import Confinement
from ..runtime.linux import syscalls
from ..runtime.spec import ConfinementSpec, SubIds
from . import landlock, seccomp
from .setup import mounts, namespaces
from .setup.sub_ids import own_sub_ids

_USER = 1000


def main() -> None:
    """Print the results as JSON.

    The value of each facility is an empty string, or why it does not work. The ABI version of
    Landlock comes with them.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the caller may ignore it
    found = {name: _run_check(check) for name, check in _CHECKS.items()}
    sys.stdout.write(json.dumps({**found, "landlock_abi": landlock.abi_version()}))


def _run_check(check: Callable[[], None]) -> str:
    """Run `check` in a child, because most checks cannot be undone. Return what failed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException as error:
            os.write(writer, str(error).encode()[:4000])
        os._exit(status)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return text or ("" if status == 0 else f"the check ended with wait status {status}")


def _check_namespaces() -> None:
    """Do all that a sandbox does: enter namespaces, and mount a root and a /proc there."""
    _enter_namespaces(None)
    _in_child(_check_mounts)


def _check_users() -> None:
    """Enter namespaces with several users."""
    _enter_namespaces(own_sub_ids())


def _enter_namespaces(sub_ids: SubIds | None) -> None:
    user: int | None = None
    if namespaces.can_use_outer_users():
        user = namespaces.gain_mount_capability(_USER, namespaces.OUTER_USERS[0])
        syscalls.unshare(syscalls.CLONE_NEWNS)
    writer = namespaces.map_writer(_USER, user, sub_ids)
    if user is not None:
        namespaces.switch_user(user)
    namespaces.enter_namespaces(user=_USER, network=False, writer=writer)


def _check_mounts() -> None:
    syscalls.bring_up_loopback()
    try:
        socket.sethostname("cellblock")
    except OSError as error:
        raise OSError(
            f"sethostname: {error.strerror}"
        ) from error  # the error does not name the call
    mounts.enter_root("/tmp")
    syscalls.unshare(syscalls.CLONE_NEWPID)
    _in_child(lambda: syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC))


def _in_child(work: Callable[[], None]) -> None:
    if text := _run_check(work):
        raise OSError(text)


def _check_seccomp() -> None:
    _confine(ConfinementSpec(filter_program=seccomp.program(), drop=True))
    try:
        syscalls.unshare(syscalls.CLONE_NEWUSER)
    except PermissionError:
        return
    raise OSError("a filter was installed but has no effect")


def _check_landlock() -> None:
    rules = landlock.confinement(landlock.abi_version(), ["/usr"], [])
    if not rules.handled:
        raise OSError("this kernel has no Landlock, or it is disabled")
    _confine(ConfinementSpec(landlock=rules, drop=True))
    try:
        os.listdir("/")
    except PermissionError:
        return
    raise OSError("rules were installed but have no effect")


def _confine(spec: ConfinementSpec) -> None:
    confinement = Confinement(spec)
    confinement.prepare()
    confinement.apply()


_CHECKS: dict[str, Callable[[], None]] = {
    "namespaces": _check_namespaces,
    "users": _check_users,
    "seccomp": _check_seccomp,
    "landlock": _check_landlock,
}
