"""Namespaces: their own users, mounts, processes, network, ipc, host name and control groups, without root."""

from __future__ import annotations

import os
import signal
from typing import Final

from ...runtime.linux import syscalls

OUTER_USERS: Final = range(
    0x70000000, 0x71000000
)  # far from anybody's: what root's cells are outside
_NOBODY = 0xFFFFFFFF  # the number that is no user's
_EVERY = (
    syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWCGROUP
)


def is_root() -> bool:
    """Tell whether we can become any of `OUTER_USERS`.

    Root in a user namespace cannot, for one in a container that was started without root: few users are known there. Outside
    it is a plain user, and goes the way of one.
    """
    return os.geteuid() == 0 and all(
        _knows_outer_users(f"/proc/self/{kind}_map") for kind in ("uid", "gid")
    )


def _knows_outer_users(path: str) -> bool:
    """Look into a map of ids: lines of the first one inside, the first one outside, and how many; see user_namespaces(7)."""
    with open(path) as file:
        lines = [[int(word) for word in line.split()] for line in file]
    return any(
        first <= OUTER_USERS[0] and OUTER_USERS[-1] < first + count for first, _, count in lines
    )


def may_mount() -> bool:
    """Tell whether we have CAP_SYS_ADMIN, which a container does not leave to its root; see proc_pid_status(5)."""
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return bool(int(lines["CapEff"], 16) & 1 << syscalls.CAP_SYS_ADMIN)


def gain_mounting(user: int, outer_user: int) -> int:
    """As root: be one that may mount, in a user namespace where that takes one; give what `outer_user` is called there."""
    if may_mount():
        return outer_user
    exchange(user, outer_user)
    return user


def exchange(user: int, outer_user: int) -> None:
    """As root that may not mount: enter a user namespace where it may, and where all are who they are but these two.

    They change places, so that nobody is left out. Who writes such maps must be outside; see user_namespaces(7).
    """
    inside, (reader, writer) = os.getpid(), os.pipe()
    outside = os.fork()
    if outside == 0:
        status = 1
        try:
            os.close(writer)
            if os.read(reader, 1):  # else nobody has entered anything
                _write_maps(inside, *sorted((user, outer_user)))
                status = 0
        finally:
            os._exit(status)
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    os.write(writer, b"x")
    _, status = os.waitpid(outside, 0)
    os.close(reader)
    os.close(writer)
    if status != 0:
        raise PermissionError(
            "root may not map users here, which takes CAP_SETUID, CAP_SETGID and CAP_SETFCAP; a plain user need not"
        )


def _write_maps(process: int, low: int, high: int) -> None:
    """Map each user and group to itself, and `low` and `high` to each other. Lines: first inside, first outside, how many."""
    between, above = high - low - 1, _NOBODY - high - 1
    ranges = [
        (0, 0, low),
        (low, high, 1),
        (low + 1, low + 1, between),
        (high, low, 1),
        (high + 1, high + 1, above),
    ]
    for kind in ("uid", "gid"):
        _write(
            f"/proc/{process}/{kind}_map",
            "".join(f"{first} {other} {count}\n" for first, other, count in ranges),
        )


def is_root_outside() -> bool:
    """Tell whether our user is the machine's root, whatever its number in a user namespace: /proc/sys is nobody else's."""
    return os.stat("/proc/sys/kernel").st_uid == os.geteuid()


def become(user: int) -> None:
    """As root: become the plain user `user` for good, so that nothing inside is root outside.

    Root without capabilities would still own /proc/sys and every file of root's.
    """
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # else /proc/self/uid_map would belong to root


def enter(*, user: int, network: bool) -> None:
    """Enter new namespaces as `user` inside. `network`: keep the network that we have.

    The process namespace begins with the next child. Raises `OSError`, also where code would be root outside.
    """
    if is_root_outside():  # without any capability it could write to /proc/sys, and name a program for the kernel to start
        raise PermissionError(
            "what runs here is root outside of its user namespace, and cannot become another user in it"
        )
    outer_user, outer_group = os.geteuid(), os.getegid()
    syscalls.unshare(_EVERY | (0 if network else syscalls.CLONE_NEWNET))
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
            syscalls.unshare(syscalls.CLONE_NEWUSER)
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
