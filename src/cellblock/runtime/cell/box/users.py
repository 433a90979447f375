"""Become another user of a box: in a user namespace of its own, with few rights or none."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
from collections.abc import Callable
from typing import NamedTuple

from ...linux import syscalls
from ...linux.id_maps import UserMaps, same_ids, write_maps

_MAX_BYTES = 1 << 20  # of a file of users or groups
_ROOT = 0
_ROOT_MASK = sum(1 << capability for capability in syscalls.ROOT_CAPABILITIES)


class BoxUser(NamedTuple):
    """A user as /etc/passwd and /etc/group describe it."""

    name: str
    number: int
    group: int
    groups: tuple[int, ...]
    home: str

    @property
    def capabilities(self) -> int:
        """The mask of what it may do."""
        return _ROOT_MASK if self.number == _ROOT else 0

    @property
    def variables(self) -> dict[bytes, bytes]:
        """The variables of its commands that say who it is."""
        name, home = (text.encode("utf-8", "surrogateescape") for text in (self.name, self.home))
        return {b"HOME": home, b"USER": name, b"LOGNAME": name}


class UserUnknown(LookupError):
    """The box has no such user."""


def find_user(user: str) -> BoxUser:
    """Return a user of the root that this process has. Raise `UserUnknown`.

    A number and root need not have a line in /etc/passwd.
    """
    number = _ROOT if user == "root" else _number(user)
    for name, _, own, group, _, home, *_ in _rows("/etc/passwd", 7):
        found, its_group = _number(own), _number(group)
        if min(found, its_group) >= 0 and (name == user or found == number):
            rows = _rows("/etc/group", 4)
            more = {_number(row[2]) for row in rows if name in row[3].split(",")}
            groups = tuple(sorted({its_group, *more} - {-1}))
            return BoxUser(name, found, its_group, groups, home or "/")
    if number < 0:
        raise UserUnknown(user)
    home = "/root" if number == _ROOT else "/"
    return BoxUser(user, number, number, (number,), home)


def _number(text: str) -> int:
    """Return the ID in `text`, or -1 if it is none, or one that no box has."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else -1


def unknown_user(user: str) -> PermissionError:
    """Return the error that the box has no such user, or cannot map it."""
    return PermissionError(errno.EPERM, f"the box has no user {user!r}")


def _rows(path: str, fields: int) -> list[list[str]]:
    """Return the lines of a file that may be anything. One that cannot be read has none."""
    try:  # without waiting for the other end of a pipe
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # /proc/self/fd has pipes of others
            return []
        text = os.read(descriptor, _MAX_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return []
    finally:
        os.close(descriptor)
    rows = (line.split(":") for line in text.splitlines())
    return [row for row in rows if len(row) >= fields]


def open_user_namespace(limit: Callable[[], None]) -> int:
    """Return a descriptor of a new user namespace with all users of this one.

    Root of this one owns it, which runs nothing: the user of the box has no rights there. `limit`
    sets the limits that all users together have in it. Raise `OSError`.
    """
    ready, wake = os.pipe2(os.O_CLOEXEC)
    child = syscalls.fork_without_hooks()
    if child == 0:
        try:
            limit()
            _switch(_ROOT, _ROOT, ())
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            os.write(wake, b"x")
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(wake)
        if not os.read(ready, 1):
            raise OSError("a user namespace for other users could not be created")
        write_maps(child, UserMaps(same_ids("uid"), same_ids("gid")))
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def become(user: BoxUser, namespace: int) -> None:
    """Enter `namespace`, which has all rights in it, and switch to `user`.

    Raise `UserUnknown` if it is not mapped. Rights are dropped later.
    """
    syscalls.setns(namespace, syscalls.CLONE_NEWUSER)
    for capability in range(syscalls.CAP_LAST + 1):
        if not user.capabilities & 1 << capability:
            syscalls.drop_from_bounding_set(capability)
    try:
        _switch(user.number, user.group, user.groups)
    except (OSError, ValueError) as error:  # one that is not mapped, or too many groups
        raise UserUnknown(user.name) from error


def _switch(user: int, group: int, groups: tuple[int, ...]) -> None:
    os.setgroups(groups)
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    # The kernel has made this process readable, or not, as programs of this machine are.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
