"""Which further users of this machine can be the users of a sandbox."""

from __future__ import annotations

import os
import secrets
import sys

from ...runtime.spec import SubIds
from . import namespaces

if sys.platform != "win32":
    import pwd

_FILES = ("/etc/subuid", "/etc/subgid")


def own_sub_ids() -> SubIds:
    """Return what a sandbox of this process can have. Raise `OSError` with what to do for some.

    For root they are IDs without an account, as those of its cells are. See `draw`.
    """
    if namespaces.can_use_outer_users():
        unused = namespaces.OUTER_SUB_IDS
        return SubIds((unused[0], unused.step), (unused[0], unused.step))
    user = os.geteuid()
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = str(user)
    users, groups = (_range_in(path, user, name) for path in _FILES)
    return SubIds(users, groups)


def draw(sub_ids: SubIds) -> SubIds:
    """Return those of one sandbox: others for each one of root, the same for each one of a user."""
    unused = namespaces.OUTER_SUB_IDS
    if sub_ids.users[0] != unused[0]:
        return sub_ids
    drawn = secrets.choice(unused), unused.step
    return SubIds(drawn, drawn)


def _range_in(path: str, user: int, name: str) -> tuple[int, int]:
    """Return the first and the number of IDs that a file gives to a user; see subuid(5)."""
    found = [(0, 0)]
    try:
        with open(path) as file:
            rows = [line.strip().split(":") for line in file]
    except OSError:
        rows = []
    for row in rows:
        if len(row) == 3 and row[0] in (name, str(user)) and row[1].isdigit() and row[2].isdigit():
            found.append((int(row[1]), int(row[2])))
    first, count = max(found, key=lambda pair: pair[1])
    if not count:
        raise OSError(
            f"{path} has no IDs for {name}; as root, run "
            f"`usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}`"
        )
    return first, count
