"""Change the owner of a folder's files: those that cells have made under a user of their own."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable

from ...runtime.linux.safe_folder import SafeFolder

Owner = tuple[int, int]  # user and group; -1 leaves one as it is
NewOwner = Callable[[os.stat_result], Owner]


def chown_tree(path: str, before: Owner, after: Owner) -> None:
    """Change the owner of the folder `path` and all in it from `before` to `after`.

    Files of other owners keep them. For the rest see `chown_entries`.
    """

    def new_owner(status: os.stat_result) -> Owner:
        return (
            after[0] if status.st_uid == before[0] else -1,
            after[1] if status.st_gid == before[1] else -1,
        )

    chown_entries(path, new_owner)


def chown_entries(path: str, new_owner: NewOwner) -> None:
    """Give the folder `path` and all in it the owners that `new_owner` returns.

    Files below that cannot be changed keep their owner. Raise `OSError` if the folder itself cannot
    be changed. Code may control all of the contents.
    """
    opened, pending = [SafeFolder.at(path)], list[list[str]]()
    try:
        top = opened[0].descriptor
        if (owner := new_owner(os.fstat(top))) != (-1, -1):
            os.chown(top, *owner)
        pending.append(_chown_entries(opened[0], new_owner))
        while pending:
            if not pending[-1]:
                pending.pop()
                opened.pop().close()
                continue
            with contextlib.suppress(OSError):  # too deep: no descriptors are left
                opened.append(opened[-1].folder(pending[-1].pop()))
                pending.append([])
                pending[-1] = _chown_entries(opened[-1], new_owner)
    finally:
        for folder in opened:
            folder.close()


def _chown_entries(folder: SafeFolder, new_owner: NewOwner) -> list[str]:
    """Change the owner of all in `folder`. Return the names of the folders in it.

    Only the names of folders are kept, because code can create millions of files.
    """
    folders = list[str]()
    for name, status in folder.statuses():
        if (owner := new_owner(status)) != (-1, -1):
            with contextlib.suppress(OSError):
                folder.chown(name, *owner)
        if stat.S_ISDIR(status.st_mode):
            folders.append(name)
    return folders
