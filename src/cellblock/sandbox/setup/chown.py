"""The files of a folder change hands, where its filesystem cannot show them as somebody else's."""

from __future__ import annotations

import contextlib
import os

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Owner = tuple[int, int]  # user and group


def change_owner(folder: str, before: Owner, after: Owner) -> None:
    """Make what belongs to `before` in `folder`, itself included, that of `after`; the rest stays as it is. Raises `OSError`.

    What is below and cannot change hands stays as well. Code may own all of it: each step goes from one folder handle to the
    next, and never through a link.
    """
    way = [_enter(folder, None, before, after)]
    try:
        _change(".", way[0][0], before, after)
        while way:
            top, names = way[-1]
            if not names:
                os.close(top)
                way.pop()
                continue
            name = names.pop()
            with contextlib.suppress(OSError):
                _change(name, top, before, after)
            with contextlib.suppress(OSError):  # deeper than there are descriptors
                way.append(_enter(name, top, before, after))
    finally:
        for top, _ in way:
            os.close(top)


def _enter(name: str, above: int | None, before: Owner, after: Owner) -> tuple[int, list[str]]:
    """Change what lies in a folder and is none itself; give a handle of it, and the folders in it.

    So only their names are kept: code can make millions of files.
    """
    top, folders = os.open(name, _FOLDER, dir_fd=above), list[str]()
    try:
        with os.scandir(top) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                else:
                    with contextlib.suppress(OSError):
                        _change(entry.name, top, before, after)
    except OSError:
        os.close(top)
        raise
    return top, folders


def _change(name: str, top: int, before: Owner, after: Owner) -> None:
    status = os.stat(name, dir_fd=top, follow_symlinks=False)
    user = after[0] if status.st_uid == before[0] else -1
    group = after[1] if status.st_gid == before[1] else -1
    if (user, group) != (-1, -1):
        os.chown(name, user, group, dir_fd=top, follow_symlinks=False)
