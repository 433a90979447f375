"""OwnershipLease: give a work folder of root to the cells' user, and take it back afterwards.

This happens on filesystems that do not support ID-mapped mounts. There the backend changes the
owner of the work folder to the user that cells run as.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass, field

from ...sandbox.setup.chown import Owner, chown_tree
from ...sandbox.setup.namespaces import OUTER_USERS


@dataclass
class _LeasedFolder:
    """The original owner of a folder, the cell users that own files in it, and its lease count."""

    owner: Owner
    cell_users: set[int] = field(default_factory=set[int])
    leases: int = 0


_leased_folders: dict[str, _LeasedFolder] = {}
_lock = threading.Lock()


class OwnershipLease:
    """One executor's lease on a work folder. Create it before the backend opens the folder.

    Opening can change the owner of the folder. Call `record_owner` right after that.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._is_recorded = False
        with _lock:
            if self._folder not in _leased_folders:
                _leased_folders[self._folder] = _LeasedFolder(_reclaim(self._folder))
            self._leased = _leased_folders[self._folder]
            self._leased.leases += 1

    def record_owner(self) -> None:
        """Record which cell user owns the folder now, before another process can change it."""
        self._is_recorded = True
        user, _ = _owner(self._folder)
        if user in OUTER_USERS:
            self._leased.cell_users.add(user)

    def release(self) -> None:
        """End the lease. The last one returns all files of the cells to the original owner."""
        if not self._is_recorded:  # the executor failed to open
            self.record_owner()
        with _lock:
            self._leased.leases -= 1
            if self._leased.leases:
                return
            del _leased_folders[self._folder]
            for cell_user in self._leased.cell_users:
                _restore_owner(self._folder, cell_user, self._leased.owner)


def _reclaim(folder: str) -> Owner:
    """Return the owner of `folder`.

    If a process was killed before it returned the folder, return it to the current user first.
    """
    user, group = _owner(folder)
    if user not in OUTER_USERS:
        return user, group
    current_user = os.geteuid(), os.getegid()
    _restore_owner(folder, user, current_user)
    return current_user


def _owner(folder: str) -> Owner:
    try:
        status = os.stat(folder)
    except OSError:  # the folder is missing; opening it will raise the error
        return os.geteuid(), os.getegid()
    return status.st_uid, status.st_gid


def _restore_owner(folder: str, cell_user: int, owner: Owner) -> None:
    with contextlib.suppress(OSError):  # the folder was removed
        chown_tree(folder, (cell_user, cell_user), owner)
