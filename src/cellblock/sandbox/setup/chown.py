"""Change the owner of a folder's files, where its file system does not support ID-mapped mounts."""

from __future__ import annotations

import contextlib
import os

from ...runtime.linux import open_flags

Owner = tuple[int, int]  # user and group


def chown_tree(folder: str, before: Owner, after: Owner) -> None:
    """Change the owner of `folder` and all in it from `before` to `after`.

    Files of other owners, and files below that cannot be changed, keep their owner. Raise
    `OSError` if the folder itself cannot be changed. Code may control all of the contents, so each
    step goes from one directory descriptor to the next, and never follows a symbolic link.
    """
    path = [_open_dir(folder, None, before, after)]
    try:
        _chown_entry(".", path[0][0], before, after)
        while path:
            top, names = path[-1]
            if not names:
                os.close(top)
                path.pop()
                continue
            name = names.pop()
            with contextlib.suppress(OSError):
                _chown_entry(name, top, before, after)
            with contextlib.suppress(OSError):  # too deep: no descriptors are left
                path.append(_open_dir(name, top, before, after))
    finally:
        for top, _ in path:
            os.close(top)


def _open_dir(name: str, above: int | None, before: Owner, after: Owner) -> tuple[int, list[str]]:
    """Open a directory and change its files. Return a descriptor and the names of its directories.

    Only the names of directories are kept, because code can create millions of files.
    """
    top, folders = os.open(name, open_flags.FOLDER, dir_fd=above), list[str]()
    try:
        with os.scandir(top) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    with contextlib.suppress(OSError):
                        _chown_entry(entry.name, top, before, after)
    except OSError:
        os.close(top)
        raise
    return top, folders


def _chown_entry(name: str, top: int, before: Owner, after: Owner) -> None:
    status = os.stat(name, dir_fd=top, follow_symlinks=False)
    user = after[0] if status.st_uid == before[0] else -1
    group = after[1] if status.st_gid == before[1] else -1
    if (user, group) != (-1, -1):
        os.chown(name, user, group, dir_fd=top, follow_symlinks=False)
