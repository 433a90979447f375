"""What this machine allows, found out by doing it in throw-away processes. Runs in a process of its own, without threads."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable

from ..runtime.cell.confinement import Confinement
from ..runtime.linux import syscalls
from . import landlock, seccomp
from .setup import mounts, namespaces

_USER = 1000


def main() -> None:
    """Print the findings as JSON: for each facility the empty text, or why it does not work; and Landlock's version."""
    found = {name: _attempt(trial) for name, trial in _TRIALS.items()}
    sys.stdout.write(json.dumps({**found, "landlock_abi": landlock.abi()}))


def _attempt(trial: Callable[[], None]) -> str:
    """Do `trial` in a child, since most of them cannot be undone; give what went wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            trial()
            status = 0
        except BaseException as error:
            os.write(writer, str(error).encode()[:4000])
        os._exit(status)
    os.close(writer)
    with open(reader, "rb") as file:
        text = file.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return text or ("" if status == 0 else f"the trial ended with wait status {status}")


def _namespaces() -> None:
    """Go all the way that a sandbox goes: a user namespace, a process namespace in it, a root and a /proc there."""
    if namespaces.is_root():
        user = namespaces.gain_mounting(_USER, namespaces.OUTER_USERS[0])
        syscalls.unshare(syscalls.CLONE_NEWNS)
        namespaces.become(user)
    namespaces.enter(user=_USER, network=False)
    _in_child(_mounts)


def _mounts() -> None:
    syscalls.bring_up_loopback()
    try:
        socket.sethostname("cellblock")
    except OSError as error:
        raise OSError(f"sethostname: {error.strerror}") from error  # which it does not say itself
    mounts.enter_root("/tmp")
    syscalls.unshare(syscalls.CLONE_NEWPID)
    _in_child(lambda: syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC))


def _in_child(work: Callable[[], None]) -> None:
    if text := _attempt(work):
        raise OSError(text)


def _seccomp() -> None:
    _confine(Confinement(filter_program=seccomp.program(), drop=True))
    try:
        syscalls.unshare(syscalls.CLONE_NEWUSER)
    except PermissionError:
        return
    raise OSError("a filter was installed and did not hold")


def _landlock() -> None:
    rules = landlock.confinement(landlock.abi(), ["/usr"], [])
    if not rules:
        raise OSError("this kernel has no Landlock, or it is switched off")
    _confine(Confinement.from_spec({**rules, "drop": True}))
    try:
        os.listdir("/")
    except PermissionError:
        return
    raise OSError("rules were installed and did not hold")


def _confine(confinement: Confinement) -> None:
    confinement.prepare()
    confinement.apply()


_TRIALS: dict[str, Callable[[], None]] = {
    "namespaces": _namespaces,
    "seccomp": _seccomp,
    "landlock": _landlock,
}
