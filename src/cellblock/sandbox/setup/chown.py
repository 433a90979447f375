"""Change the owner of a folder's files: those that cells have made under a user of their own."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable

from ...runtime.linux.safe_folder import SafeFolder

Owner = tuple[int, int]  # user and group; -1 leaves one as it is
NewOwner = Callable[[os.stat_result], Owner]
Change = Callable[[str, os.stat_result, Owner], None]  # the owner of a path with this status
_UNCHANGED = (-1, -1)
_ATTEMPTS = 3  # while code moves folders


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


def _change_owner(path: str, _status: os.stat_result, owner: Owner) -> None:
    os.chown(path, *owner)


def chown_entries(path: str, new_owner: NewOwner, change: Change = _change_owner) -> None:
    """Let `change` give the folder `path` and all in it the owners that `new_owner` returns.

    Files below that cannot be changed keep their owner. Raise `OSError` if the folder itself cannot
    be changed. Code may control all of the contents, and change them meanwhile.
    """
    with SafeFolder.at(path) as folder:
        if (owner := new_owner(os.fstat(folder.descriptor))) != _UNCHANGED:
            os.chown(folder.descriptor, *owner)
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FolderMoved):
            _Walk(path, new_owner, change).run()
            return


class FolderMoved(OSError):
    """A folder is no longer where it was entered."""


class _Walk:
    """A walk through the folder `path`, at any depth: only one folder is open at a time.

    The way back is `..`, so a folder that code has moved is noticed.
    """

    def __init__(self, path: str, new_owner: NewOwner, change: Change) -> None:
        self._folder, self._new_owner, self._change = SafeFolder.at(path), new_owner, change
        # Which folders this one is in, and the names of those in them that are not entered yet.
        self._above: list[tuple[tuple[int, int], list[str]]] = []

    def run(self) -> None:
        """Change the owners of all entries. Raise `FolderMoved`."""
        try:
            pending = self._chown_entries()
            while pending or self._above:
                if not pending:
                    pending = self._leave()
                    continue
                try:
                    self._enter(pending.pop(), pending)
                    pending = []
                    pending = self._chown_entries()
                except FolderMoved:
                    raise
                except OSError:  # code has replaced it, or it cannot be read
                    continue
        finally:
            self._folder.close()

    def _chown_entries(self) -> list[str]:
        """Change the owner of all in the folder. Return the names of the folders in it.

        Only the names of folders are kept, because code can create millions of files.
        """
        folders = list[str]()
        for name, status in self._folder.statuses():
            if self._new_owner(status) != _UNCHANGED:
                with contextlib.suppress(OSError), self._folder.handle(name) as handle:
                    self._chown(handle)
            if stat.S_ISDIR(status.st_mode):
                folders.append(name)
        return folders

    def _chown(self, handle: int) -> None:
        """Change the owner of what `handle` is, which may not be what had its name before."""
        status = os.fstat(handle)
        if (owner := self._new_owner(status)) != _UNCHANGED:
            self._change(f"/proc/self/fd/{handle}", status, owner)

    def _enter(self, name: str, pending: list[str]) -> None:
        inner, own = self._folder.folder(name), self._folder.identity
        try:
            with inner.above() as outer:
                _check_identity(outer, own)
        except BaseException:
            inner.close()
            raise
        self._above.append((own, pending))
        self._change_to(inner)

    def _leave(self) -> list[str]:
        """Go to the folder above. Return the names that are to be entered there."""
        identity, pending = self._above.pop()
        self._change_to(self._folder.above())
        _check_identity(self._folder, identity)
        return pending

    def _change_to(self, folder: SafeFolder) -> None:
        self._folder.close()
        self._folder = folder


def _check_identity(folder: SafeFolder, expected: tuple[int, int]) -> None:
    if folder.identity != expected:
        raise FolderMoved
