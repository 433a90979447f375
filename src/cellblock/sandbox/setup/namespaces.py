"""Namespaces for users, mounts, processes, network, IPC, host name and cgroups, without root."""

from __future__ import annotations

import os
import signal
from typing import Final

from ...runtime.linux import syscalls

# The users of root's cells outside of the sandbox; far from those of any system.
OUTER_USERS: Final = range(0x70000000, 0x71000000)
_INVALID_USER = 0xFFFFFFFF
_ALL_NAMESPACES = (
    syscalls.CLONE_NEWUSER
    | syscalls.CLONE_NEWNS
    | syscalls.CLONE_NEWPID
    | syscalls.CLONE_NEWIPC
    | syscalls.CLONE_NEWUTS
    | syscalls.CLONE_NEWCGROUP
)


def can_use_outer_users() -> bool:
    """Return True if this process can become each of `OUTER_USERS`.

    Root in a user namespace can often not, for example in a rootless container, where few users are
    mapped. It is an unprivileged user outside, and must be treated as one.
    """
    return os.geteuid() == 0 and all(
        _maps_outer_users(f"/proc/self/{kind}_map") for kind in ("uid", "gid")
    )


def _maps_outer_users(path: str) -> bool:
    """Return True if a file of ID maps contains `OUTER_USERS`; see user_namespaces(7).

    A line holds the first ID inside, the first ID outside, and the number of IDs.
    """
    with open(path) as file:
        lines = [[int(word) for word in line.split()] for line in file]
    return any(
        first <= OUTER_USERS[0] and OUTER_USERS[-1] < first + count for first, _, count in lines
    )


def has_mount_capability() -> bool:
    """Return True if we have CAP_SYS_ADMIN; see proc_pid_status(5).

    Root in a container usually does not.
    """
    with open("/proc/self/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return bool(int(lines["CapEff"], 16) & 1 << syscalls.CAP_SYS_ADMIN)


def gain_mount_capability(user: int, outer_user: int) -> int:
    """As root: get the right to mount, by a user namespace if necessary.

    Return the ID of `outer_user` in the namespace that we are in then.
    """
    if has_mount_capability():
        return outer_user
    enter_swapped_user_namespace(user, outer_user)
    return user


def enter_swapped_user_namespace(user: int, outer_user: int) -> None:
    """As root without the right to mount: enter a user namespace that has it.

    All users keep their IDs, but `user` and `outer_user` swap theirs, so that every ID is mapped.
    Only a process outside the namespace may write such maps; see user_namespaces(7).
    """
    inside, (reader, writer) = os.getpid(), os.pipe()
    outside = os.fork()
    if outside == 0:
        status = 1
        try:
            os.close(writer)
            if os.read(reader, 1):  # no byte: the namespace was not created
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
            "root cannot map users here without CAP_SETUID, CAP_SETGID and CAP_SETFCAP; "
            "add them, or run as an unprivileged user"
        )


def _write_maps(process: int, low: int, high: int) -> None:
    """Map each user and group to itself, but `low` and `high` to each other.

    A line holds the first ID inside, the first ID outside, and the number of IDs.
    """
    between, above = high - low - 1, _INVALID_USER - high - 1
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


def is_host_root() -> bool:
    """Return True if our user is the host's root, whatever its ID in a user namespace.

    Only the host's root owns /proc/sys.
    """
    return os.stat("/proc/sys/kernel").st_uid == os.geteuid()


def switch_user(user: int) -> None:
    """As root: become the unprivileged user `user` for good.

    Then nothing in the sandbox is root outside. Root without capabilities would still own /proc/sys
    and all files of root.
    """
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # otherwise /proc/self/uid_map belongs to root


def enter_namespaces(*, user: int, network: bool) -> None:
    """Enter new namespaces, with the ID `user` inside. `network` keeps the current network.

    The process namespace starts with the next child. Raise `OSError`, also if code would be root
    outside.
    """
    # Even without capabilities root could write to /proc/sys, and make the kernel start a program.
    if is_host_root():
        raise PermissionError(
            "this process is root outside of its user namespace, and cannot become another user"
        )
    outer_user, outer_group = os.geteuid(), os.getegid()
    syscalls.unshare(_ALL_NAMESPACES | (0 if network else syscalls.CLONE_NEWNET))
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {outer_user} 1")
    _write("/proc/self/gid_map", f"{user} {outer_group} 1")


def open_id_map(owner: tuple[int, int], user: int) -> int:
    """As root: return a descriptor of a user namespace that maps `owner` (user, group) to `user`.

    mount_setattr(2) takes it to map the owners of one mount.
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
            raise OSError("a user namespace for mapping owners could not be created")
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
