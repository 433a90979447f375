"""Namespaces: their own users, mounts, processes, network, ipc, host name and control groups, without root."""

from __future__ import annotations

import os
import signal

from ..cell import kernel

_EVERY = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)


def become(user: int) -> None:
    """As root: become the plain user `user` for good, so that nothing inside is root outside.

    Root without capabilities would still own /proc/sys and every file of root's.
    """
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # else /proc/self/uid_map would belong to root


def enter(*, user: int, network: bool) -> None:
    """Enter new namespaces as `user` inside. `network`: keep the network that we have.

    The process namespace begins with the next child.
    """
    outer_user, outer_group = os.geteuid(), os.getegid()
    kernel.unshare(_EVERY | (0 if network else kernel.CLONE_NEWNET))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {outer_user} 1")
    _write("/proc/self/gid_map", f"{user} {outer_group} 1")


def owner_map(owner: tuple[int, int], user: int) -> int:
    """As root: give a descriptor of a user namespace that shows files of `owner` (user, group) as those of `user`.

    It is what `mount_setattr(2)` takes to map the owners of one mount.
    """
    ready, wake = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kernel.unshare(kernel.CLONE_NEWUSER)
            os.write(wake, b"x")
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(wake)
        if not os.read(ready, 1):
            raise OSError("a user namespace for mapping owners could not be made")
        _write(f"/proc/{child}/uid_map", f"{owner[0]} {user} 1")
        _write(f"/proc/{child}/gid_map", f"{owner[1]} {user} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
