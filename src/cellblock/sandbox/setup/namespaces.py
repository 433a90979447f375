"""Namespaces for users, mounts, processes, network, IPC, host name and cgroups, without root."""

from __future__ import annotations

import os
import signal
from typing import Final

from ...runtime.linux import syscalls
from ...runtime.linux.id_maps import (
    IdLine,
    MapWriter,
    UserMaps,
    lines_with_user,
    write_maps,
    write_maps_by_programs,
)
from ...runtime.spec import SubIds

# The users of root's cells outside of the sandbox; far from those of any system.
OUTER_USERS: Final = range(0x70000000, 0x71000000)
# Those of other users in their sandboxes: so many for each.
OUTER_SUB_IDS: Final = range(0x71000000, 0x7FFF0000, 0x10000)
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
    lines = _swapped(*sorted((user, outer_user)))
    writer = MapWriter(lambda process: write_maps(process, UserMaps(lines, lines)))
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    try:
        writer.write()
    except OSError as error:
        raise PermissionError(
            "root cannot map users here without CAP_SETUID, CAP_SETGID and CAP_SETFCAP; "
            "add them, or run as an unprivileged user"
        ) from error


def _swapped(low: int, high: int) -> tuple[IdLine, ...]:
    """Return lines that map each ID to itself, but `low` and `high` to each other."""
    between, above = high - low - 1, _INVALID_USER - high - 1
    return (
        IdLine(0, 0, low),
        IdLine(low, high, 1),
        IdLine(low + 1, low + 1, between),
        IdLine(high, low, 1),
        IdLine(high + 1, high + 1, above),
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


def map_writer(user: int, outer_user: int | None, sub_ids: SubIds | None) -> MapWriter | None:
    """Return what maps `user` and as many more as there are `sub_ids`; None without these.

    As root only: `outer_user` is the same user outside. It is still root then.
    """
    lines = lines_of_users(user, outer_user, sub_ids)
    if lines is None:
        return None
    write = write_maps_by_programs if outer_user is None else write_maps
    return MapWriter(lambda process: write(process, lines))


def lines_of_users(user: int, outer_user: int | None, sub_ids: SubIds | None) -> UserMaps | None:
    """Return the lines for `map_writer`."""
    if sub_ids is None:
        return None
    own = (outer_user, outer_user) if outer_user is not None else (os.geteuid(), os.getegid())
    users, groups = (lines_with_user(user, *pair) for pair in zip(own, sub_ids, strict=True))
    return UserMaps(users, groups)


def enter_namespaces(
    *, user: int, network: bool, writer: MapWriter | None = None, processes: bool = True
) -> None:
    """Enter new namespaces, with the ID `user` inside. `network` keeps the current network.

    The process namespace starts with the next child, if there is one: `processes`. `writer` maps
    more users. Raise `OSError`, also if code would be root outside.
    """
    # Even without capabilities root could write to /proc/sys, and make the kernel start a program.
    if is_host_root():
        raise PermissionError(
            "this process is root outside of its user namespace, and cannot become another user"
        )
    outer_user, outer_group = os.geteuid(), os.getegid()
    kinds = _ALL_NAMESPACES if processes else _ALL_NAMESPACES & ~syscalls.CLONE_NEWPID
    syscalls.unshare(kinds | (0 if network else syscalls.CLONE_NEWNET))
    if writer is not None:
        writer.write()
        return
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {outer_user} 1")
    _write("/proc/self/gid_map", f"{user} {outer_group} 1")


def lines_of_owner(owner: tuple[int, int], user: int, sub_ids: SubIds | None) -> UserMaps:
    """Return lines that map `owner` (user, group) to `user`. Files of `sub_ids` stay theirs."""
    users, groups = (
        (IdLine(own, user, 1), *([IdLine(first, first, count)] if count else []))
        for own, (first, count) in zip(owner, sub_ids or ((0, 0), (0, 0)), strict=True)
    )
    return UserMaps(users, groups)


def open_id_map(lines: UserMaps) -> int:
    """As root: return a descriptor of a user namespace with these lines.

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
        write_maps(child, lines)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
