"""Change the owner of a folder's files, where its file system does not support ID-mapped mounts."""

from __future__ import annotations

import contextlib
import os
import stat

from ...runtime.linux.safe_folder import SafeFolder

Owner = tuple[int, int]  # user and group


def chown_tree(path: str, before: Owner, after: Owner) -> None:
    """Change the owner of the folder `path` and all in it from `before` to `after`.

    Files of other owners, and files below that cannot be changed, keep their owner. Raise
    `OSError` if the folder itself cannot be changed. Code may control all of the contents.
    """
    opened, pending = [SafeFolder.at(path)], list[list[str]]()
    try:
        top = opened[0].descriptor
        if (owner := _new_owner(os.fstat(top), before, after)) != (-1, -1):
            os.chown(top, *owner)
        pending.append(_chown_entries(opened[0], before, after))
        while pending:
            if not pending[-1]:
                pending.pop()
                opened.pop().close()
                continue
            with contextlib.suppress(OSError):  # too deep: no descriptors are left
                opened.append(opened[-1].folder(pending[-1].pop()))
                pending.append([])
                pending[-1] = _chown_entries(opened[-1], before, after)
    finally:
        for folder in opened:
            folder.close()


def _chown_entries(folder: SafeFolder, before: Owner, after: Owner) -> list[str]:
    """Change the owner of all in `folder`. Return the names of the folders in it.

    Only the names of folders are kept, because code can create millions of files.
    """
    folders = list[str]()
    for name, status in folder.statuses():
        if (owner := _new_owner(status, before, after)) != (-1, -1):
            with contextlib.suppress(OSError):
                folder.chown(name, *owner)
        if stat.S_ISDIR(status.st_mode):
            folders.append(name)
    return folders


def _new_owner(status: os.stat_result, before: Owner, after: Owner) -> Owner:
    """Return the user and group to set. -1 leaves them as they are."""
    return (
        after[0] if status.st_uid == before[0] else -1,
        after[1] if status.st_gid == before[1] else -1,
    )
