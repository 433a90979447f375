"""Take back what other users of a box have left in folders of this machine.

On disk their files belong to users that only the box has. A plain user could not remove them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from ...runtime.linux import syscalls
from ...runtime.messages import MountSpec
from ...runtime.spec import SubIds
from .chown import Owner, chown_entries

_CLOCK_REALTIME_COARSE = 5  # the clock of the times of files
_OVERFLOW = 65534  # what has no ID in a user namespace, for example the caller's other groups


class LeftFiles:
    """The folders that a box can write to, and their owners before it could.

    Only what has changed since then is taken back: another program of the caller, such as a
    container engine, may use the same users. As root, `sub_ids` are those of the box. A plain user,
    in its namespace, can only take back from them.
    """

    def __init__(self, sub_ids: SubIds | None) -> None:
        self._sub_ids = sub_ids
        if sub_ids is None:  # to become the owner of a file for a moment
            syscalls.prctl(syscalls.PR_SET_SECUREBITS, syscalls.SECBIT_NO_SETUID_FIXUP)
        self._folders: dict[str, tuple[Owner, int]] = {}  # the owner, and since when: nanoseconds

    def watch(self, mounts: Iterable[MountSpec]) -> None:
        """Remember the folders of `mounts` that can be written to."""
        for mount in mounts:
            if mount.writable and not mount.device and not mount.below:
                with contextlib.suppress(OSError):
                    status = os.stat(mount.source)
                    since = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
                    found = (status.st_uid, status.st_gid), since
                    self._folders.setdefault(mount.source, found)

    def take_back(self, folders: Iterable[str] | None = None) -> None:
        """Give their owners what belongs to users of the box: of all folders by default."""
        for folder in self._folders if folders is None else folders:
            if folder in self._folders:
                with contextlib.suppress(OSError):  # it was removed
                    self._take_back(folder, *self._folders[folder])

    def _take_back(self, folder: str, owner: Owner, since: int) -> None:
        if self._sub_ids is None:
            owner = os.geteuid(), os.getegid()

        def new_owner(status: os.stat_result) -> Owner:
            if status.st_ctime_ns < since:
                return -1, -1
            has_our_user = self._is_ours(0, status.st_uid, owner)
            has_our_group = self._is_ours(1, status.st_gid, owner)
            if self._sub_ids is None and status.st_gid == _OVERFLOW and not has_our_user:
                has_our_group = False
            return owner[0] if has_our_user else -1, owner[1] if has_our_group else -1

        if self._sub_ids is None:
            chown_entries(folder, new_owner, _change_in_namespace)
        else:
            chown_entries(folder, new_owner)

    def _is_ours(self, kind: int, number: int, owner: Owner) -> bool:
        if self._sub_ids is None:
            return number != owner[kind]
        first, count = self._sub_ids[kind]
        return first <= number < first + count


def _change_in_namespace(path: str, status: os.stat_result, owner: Owner) -> None:
    """Change an owner where only the file's own user may change a group that has no ID here."""
    try:
        os.chown(path, *owner)
    except PermissionError:
        own = os.geteuid()
        os.seteuid(status.st_uid)
        try:
            os.chown(path, -1, owner[1])
        finally:
            os.seteuid(own)
        os.chown(path, *owner)
