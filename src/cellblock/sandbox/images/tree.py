"""The files of a root file system while layers are unpacked into it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Generator
from typing import TypeVar

from ...errors import ImageUnusable
from ...runtime.linux.safe_folder import SafeFolder
from .byte_stream import Budget

T = TypeVar("T")
Names = tuple[str, ...]  # of a path below the root

_MAX_STEPS = 500  # on the way to one file, through folders and links
_KEPT_BITS = 0o1777  # not setuid and setgid


def split(path: str) -> Names:
    """Return the names in `path`. A leading slash means nothing: all paths begin at the root."""
    return tuple(name for name in path.split("/") if name not in ("", "."))


class Tree:
    """A root file system in the folder `root`.

    A link is never followed: its text is resolved here, with `root` as `/` and as the folder above
    itself. So nothing outside `root` is read or written, whatever links the layers have.
    """

    def __init__(self, root: SafeFolder, budget: Budget) -> None:
        self._root, self._budget = root, budget
        # The folder that was used last: the next file is often in it too.
        self._names: Names | None = None
        self._folder, self._path = self._open_root(), Names()
        self._made = set[Names]()  # by this layer, with the folders above
        self._cleared = set[Names]()  # folders that have nothing of the layers below
        self._modes = {Names(): 0o755}  # of folders. Until the end they are writable

    def close(self) -> None:
        """Close what is open."""
        self._folder.close()

    def begin_layer(self) -> None:
        """Regard all that is there as made by the layers below."""
        self._made.clear()
        self._cleared.clear()

    # what a layer adds

    def make_folder(self, names: Names, mode: int) -> None:
        """Create a folder, or change the mode of one that exists."""
        path: Names = ()
        if names:
            above, path = self._enter(names[:-1], create=True)
            path = (*path, names[-1])
            try:
                above.folder(names[-1]).close()
            except FileNotFoundError:
                above.new_folder(names[-1]).close()
            except NotADirectoryError:
                self._remove(above, names[-1])
                above.new_folder(names[-1]).close()
        self._modes[path] = mode & _KEPT_BITS
        self._note_made(path)

    def make_path(self, names: Names) -> None:
        """Create the folders that `names` lead to, as far as they are missing."""
        self._enter(names, create=True)

    @contextlib.contextmanager
    def make_file(self, names: Names, mode: int, modified: float) -> Generator[int]:
        """Create a file instead of what is there. Yield its descriptor."""
        descriptor = self._make(names, SafeFolder.create_file)
        try:
            yield descriptor
            os.chmod(descriptor, mode & _KEPT_BITS)
            os.utime(descriptor, (modified, modified))
        finally:
            os.close(descriptor)

    def make_link(self, names: Names, text: str) -> None:
        """Create a symbolic link instead of what is there."""
        self._make(names, lambda folder, name: folder.create_link(name, text))

    def make_hard_link(self, names: Names, target: Names) -> None:
        """Create another name for the file or link `target`, instead of what is there."""
        if not target:
            raise ImageUnusable("it is a hard link to a folder")
        folder, path = self._walk(target[:-1], create=False)
        with folder:
            _, path_above = self._enter(names[:-1], create=True)
            if (*path, *target[-1:]) != (*path_above, *names[-1:]):
                if stat.S_ISDIR(folder.stat(target[-1]).st_mode):
                    raise ImageUnusable("it is a hard link to a folder")
                self._make(names, lambda above, name: folder.link_in(above, target[-1], name))

    def _make(self, names: Names, create: Callable[[SafeFolder, str], T]) -> T:
        if not names:
            raise ImageUnusable("its root is not a folder")
        above, path = self._enter(names[:-1], create=True)
        try:
            made = create(above, names[-1])
        except FileExistsError:
            self._remove(above, names[-1])
            made = create(above, names[-1])
        self._note_made((*path, names[-1]))
        return made

    def _note_made(self, path: Names) -> None:
        while path not in self._made:
            self._made.add(path)
            path = path[:-1]

    # what a layer removes

    def hide(self, names: Names) -> None:
        """Remove a file or folder of the layers below, if there is one."""
        pending = [names]
        while pending:
            *parents, name = pending.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                above, path = self._enter((*parents,), create=False)
                path = (*path, name)
                if path not in self._made:
                    self._remove(above, name)
                else:
                    with above.folder(name) as folder:
                        pending += self._clear(folder, path)

    def hide_contents(self, names: Names) -> None:
        """Remove what a folder has of the layers below."""
        with contextlib.suppress(FileNotFoundError):
            folder, path = self._enter(names, create=False)
            for inner in self._clear(folder, path):
                self.hide(inner)

    def _clear(self, folder: SafeFolder, path: Names) -> list[Names]:
        """Return all that the caller must hide in a folder, which is nothing the second time.

        So the work does not grow with how often a layer says the same.
        """
        if path in self._cleared:
            return []
        self._cleared.add(path)
        return [(*path, name) for name in os.listdir(folder.descriptor)]

    def _remove(self, above: SafeFolder, name: str) -> None:
        above.remove(name)
        self._names = None  # what leads to the folder used last may have been removed

    def set_modes(self) -> None:
        """Give all folders the modes that the layers say, when nothing is added any more."""
        for path, mode in sorted(self._modes.items(), reverse=True):  # those below before
            with contextlib.suppress(FileNotFoundError, ImageUnusable):  # removed, replaced
                folder, found = self._enter(path, create=False)
                if found == path:
                    os.chmod(folder.descriptor, mode)

    # from names to folders

    def _enter(self, names: Names, *, create: bool) -> tuple[SafeFolder, Names]:
        """Return the folder that `names` lead to, which is open until the next call, and its path.

        `create` makes folders that are missing.
        """
        self._budget.check_stop()
        if names != self._names:
            folder, self._path = self._walk(names, create=create)
            self._folder.close()
            self._folder, self._names = folder, names
        return self._folder, self._path

    def _walk(self, names: Names, *, create: bool) -> tuple[SafeFolder, Names]:
        """Open the folder that `names` lead to. Return it with its path, which has no links."""
        folder, path = self._open_root(), Names()
        try:
            for _ in range(_MAX_STEPS):
                if not names:
                    return folder, path
                name, *rest = names
                inner = None
                if name == "..":  # in the text of a link
                    names = (*path[:-1], *rest)
                elif isinstance(found := self._open(folder, (*path, name), create=create), str):
                    names = (*(() if found.startswith("/") else path), *split(found), *rest)
                else:
                    inner, path, names = found, (*path, name), (*rest,)
                folder.close()
                if inner is None:  # begin again with other names
                    inner, path = self._open_root(), ()
                folder = inner
            raise ImageUnusable("a path in it is too deep, or has too many links")
        except BaseException:
            folder.close()
            raise

    def _open(self, above: SafeFolder, path: Names, *, create: bool) -> SafeFolder | str:
        """Open the folder `path` in `above`; return the text of a link instead."""
        try:
            return above.folder(path[-1])
        except FileNotFoundError:
            if not create:
                raise
            self._budget.count_file()  # one path can name hundreds
            self._modes[path] = 0o755
            return above.new_folder(path[-1])
        except NotADirectoryError as error:
            try:
                return above.read_link(path[-1])
            except OSError:
                raise ImageUnusable(f"{'/'.join(path)} is a file, not a folder") from error

    def _open_root(self) -> SafeFolder:
        return SafeFolder(os.dup(self._root.descriptor))
