"""SafeFolder: use a folder from outside while untrusted code in a sandbox changes it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import sys
from collections.abc import Generator, Iterator
from typing import BinaryIO

Names = tuple[str, ...]
READ_RIGHTS, ALL_RIGHTS = stat.S_IRUSR | stat.S_IXUSR, stat.S_IRWXU  # to a folder
TEMPORARY = ".cellblock-"  # the names of temporary files and folders begin with this

# Windows has neither these flags nor `dir_fd`, so that no work folder can be opened there.
if sys.platform == "win32":
    _FOLDER = _READ = _HANDLE = _CREATE = os.O_RDONLY
else:
    _FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    _READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    # macOS has no O_PATH, and no sandbox whose files change their owner.
    _HANDLE = os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_PATH if sys.platform == "linux" else 0)
    _CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SafeFolder:
    """An open folder. Code may at any moment replace any name in it, or move its contents.

    Nothing outside it is ever read, written or removed, and nothing makes the caller wait, because:

    - Links: a name has one component, never "..", and is looked up in the open `descriptor`. No
      call follows a link there. So no path exists that code could redirect.
    - Races: what was opened is examined, not the name before. Rights are given to what was opened.
      A new file or folder has a name that did not exist.
    - Pipes, devices and leases: files are opened without waiting, and only regular ones are read.
    - Moves: code can only move a folder to where it may write itself. An open one goes with it.
    - Mounts: those in a sandbox do not exist outside, and hard links do not lead out of a mount.

    The parents of the path of `at` are trusted. A folder is a context manager, which takes back the
    rights that were given to open it.
    """

    __slots__ = ("descriptor", "mode")

    def __init__(self, descriptor: int, mode: int | None = None) -> None:
        """Own the open folder `descriptor`, which gets `mode` at the end, if that is given."""
        self.descriptor, self.mode = descriptor, mode

    @classmethod
    def at(
        cls, path: str | os.PathLike[str], *names: str, create: bool = False, rights: int = 0
    ) -> SafeFolder:
        """Open the folder `path`, then the folders `names`, each in the one before, as `folder`.

        Only those are created, and `rights` are for `path`.
        """
        folder = cls(*_open(path, None, _FOLDER, rights))
        if not names:
            return folder
        with folder:
            return folder.inner(*names, create=create)

    def __enter__(self) -> SafeFolder:
        """Return the folder itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the folder."""
        self.close()

    def close(self) -> None:
        """Give back the mode, and close the descriptor."""
        try:
            if self.mode is not None:
                os.chmod(self.descriptor, self.mode)
        finally:
            os.close(self.descriptor)

    def folder(self, name: str, *, create: bool = False, rights: int = 0) -> SafeFolder:
        """Open the folder `name`, and give its owner `rights` to it until it is closed.

        With `create`, it is created if it is missing, with the owner of this one. Raise
        `NotADirectoryError` for anything else, also for a link.
        """
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(_single(name), dir_fd=self.descriptor)
                with self.folder(name) as inner, inner.entries() as entries:
                    if not any(entries):  # otherwise code has replaced it by another folder
                        self.give_to_owner(inner.descriptor)
        return SafeFolder(*_open(_single(name), self.descriptor, _FOLDER, rights))

    def inner(self, *names: str, create: bool = False) -> SafeFolder:
        """Open the folders `names`, each in the one before, as `folder`. Return the last one."""
        folder = SafeFolder(os.dup(self.descriptor))
        for name in names:
            with folder:
                folder = folder.folder(name, create=create)
        return folder

    def above(self) -> SafeFolder:
        """Open the folder that this one is in now: code may have moved it. See `identity`."""
        return SafeFolder(os.open("..", _FOLDER, dir_fd=self.descriptor))

    @property
    def identity(self) -> tuple[int, int]:
        """What no other folder has."""
        status = os.fstat(self.descriptor)
        return status.st_dev, status.st_ino

    def new_folder(self, name: str) -> SafeFolder:
        """Create the folder `name`, which only its owner may use, and open it."""
        os.mkdir(_single(name), 0o700, dir_fd=self.descriptor)
        return self.folder(name, rights=ALL_RIGHTS)

    @property
    def path(self) -> str:
        """Where the folder is now, for messages."""
        return os.readlink(f"/proc/self/fd/{self.descriptor}")

    def entries(self) -> contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]:
        """Return the entries. Call their methods with `follow_symlinks=False`."""
        return os.scandir(self.descriptor)

    def statuses(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield name and status of each entry, of a link itself. Skip what vanishes meanwhile."""
        with self.entries() as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield entry.name, status

    def walk(self, depth: int) -> Iterator[tuple[Names, os.stat_result]]:
        """Yield the names on the way to each entry below, and its status, sorted by name.

        Raise `too_deep` for what is in more than `depth` folders, and `OSError` if code removes or
        replaces a folder meanwhile.
        """
        pending = [Names()]
        while pending:
            above = pending.pop()
            if len(above) > depth:
                raise too_deep(depth, "/".join(above))
            with self.inner(*above) as folder:
                found = sorted(folder.statuses())
            for name, status in found:
                names = (*above, name)
                yield names, status
                if stat.S_ISDIR(status.st_mode):
                    pending.append(names)

    def stat(self, name: str) -> os.stat_result:
        """Return the status of `name`, of a link itself."""
        return os.stat(_single(name), dir_fd=self.descriptor, follow_symlinks=False)

    def read_file(self, name: str) -> BinaryIO:
        """Open the file `name`, as `open_file` does."""
        return open(self.open_file(name), "rb")

    def open_file(self, name: str, *, rights: int = 0) -> int:
        """Return the regular file `name`, open for reading. Its owner is given `rights` meanwhile.

        Raise `OSError` for anything else: `IsADirectoryError`, or with `ELOOP` for a link and
        `ENXIO` for a pipe or device.
        """
        descriptor, mode = _open(_single(name), self.descriptor, _READ, rights)
        try:
            if mode is not None:
                os.chmod(descriptor, mode)
            kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
            if kind != stat.S_IFREG:
                number = errno.EISDIR if kind == stat.S_IFDIR else errno.ENXIO
                raise OSError(number, os.strerror(number), name)
            return descriptor
        except BaseException:
            os.close(descriptor)
            raise

    def create_file(self, name: str, mode: int = 0o644) -> int:
        """Create the file `name`, with the owner of this folder. Return a writable descriptor.

        Raise `FileExistsError` if the name exists.
        """
        descriptor = os.open(_single(name), _CREATE, mode, dir_fd=self.descriptor)
        self.give_to_owner(descriptor)
        return descriptor

    def write_new_file(self, name: str, data: bytes) -> int:
        """Create a file with `data`, completely or not at all. Return its ctime in nanoseconds."""
        descriptor = self.create_file(name)
        try:
            write_all(descriptor, data)
            return os.fstat(descriptor).st_ctime_ns
        except BaseException:  # also an interrupt must not leave an incomplete file
            self._discard(name)
            raise
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def replace_file(self, name: str) -> Generator[BinaryIO]:
        """Yield a temporary file that is renamed to `name` at the end, so is never incomplete."""
        temporary = _temporary_name()
        with open(self.create_file(temporary), "wb") as file:
            try:
                yield file
                file.flush()
                self._move(temporary, self, _single(name))
            except BaseException:
                self._discard(temporary)
                raise

    def _move(self, name: str, target: SafeFolder, new_name: str) -> None:
        os.replace(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=target.descriptor)

    def _try_to_move(self, name: str, target: SafeFolder) -> str | None:
        """Move the folder `name` to `target`, and return its name there, or None if that fails.

        It does on a full disk, and an overlayfs does not move folders of its lower layers.
        """
        new_name = _temporary_name()
        try:
            self._move(name, target, new_name)
        except OSError:
            return None
        return new_name

    def give_to_owner(self, descriptor: int) -> None:
        """As root, change the owner of an open file or folder to that of this folder.

        Later blocks can then write to it.
        """
        if os.geteuid() != 0:
            return
        owner = os.fstat(self.descriptor)
        if (owner.st_uid, owner.st_gid) != (0, 0):
            with contextlib.suppress(OSError):  # the user namespace does not map the owner
                os.fchown(descriptor, owner.st_uid, owner.st_gid)

    @contextlib.contextmanager
    def handle(self, name: str) -> Generator[int]:
        """Yield a descriptor of `name`, of a link itself, that only says which file it is."""
        descriptor = os.open(_single(name), _HANDLE, dir_fd=self.descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def link(self, path: str | os.PathLike[str], name: str) -> None:
        """Create the hard link `name` to the file `path`, which no code can redirect."""
        os.link(path, _single(name), dst_dir_fd=self.descriptor, follow_symlinks=False)

    def link_in(self, folder: SafeFolder, name: str, new_name: str) -> None:
        """Create in `folder` the hard link `new_name` to the file or link `name` of this one."""
        os.link(
            _single(name),
            _single(new_name),
            src_dir_fd=self.descriptor,
            dst_dir_fd=folder.descriptor,
            follow_symlinks=False,
        )

    def read_link(self, name: str) -> str:
        """Return the text of the symbolic link `name`."""
        return os.readlink(_single(name), dir_fd=self.descriptor)

    def create_link(self, name: str, text: str) -> None:
        """Create the symbolic link `name`, with `text`."""
        os.symlink(text, _single(name), dir_fd=self.descriptor)

    def create_whiteout(self, name: str) -> None:
        """Create the device that says in a layer of an overlayfs that `name` is removed."""
        os.mknod(_single(name), stat.S_IFCHR, os.makedev(0, 0), dir_fd=self.descriptor)

    def unlink(self, name: str) -> None:
        """Remove the file or link `name`. Raise `IsADirectoryError` for a folder."""
        os.unlink(_single(name), dir_fd=self.descriptor)

    def remove_empty(self, name: str) -> None:
        """Remove the folder `name`. Raise `OSError` if something is in it."""
        os.rmdir(_single(name), dir_fd=self.descriptor)

    def _discard(self, name: str) -> None:
        with contextlib.suppress(OSError):
            self.unlink(name)

    def remove(self, name: str) -> None:
        """Remove the file or folder `name`, with all in it, of any names, depths and modes.

        Raise the first `OSError` of a file that is still there at the end.
        """
        try:
            self.unlink(name)
        except IsADirectoryError:
            with self.folder(name, rights=ALL_RIGHTS) as inner:
                inner.empty()
            os.rmdir(name, dir_fd=self.descriptor)

    def empty(self) -> None:
        """Remove everything in the folder, as `remove` does.

        Subfolders of its folders are moved up into it where that works, so that the number of open
        files and the stack do not grow with the depth.
        """
        errors = _FirstError()
        pending = self._remove_files(errors)
        while pending:
            name = pending.pop()
            with errors:
                with self.folder(name, rights=ALL_RIGHTS) as folder:
                    for inner in folder._remove_files(errors):
                        # To move a folder, its owner needs write permission.
                        with errors, folder.folder(inner, rights=ALL_RIGHTS) as opened:
                            if moved := folder._try_to_move(inner, self):
                                pending.append(moved)
                            else:
                                opened.empty()
                                os.rmdir(inner, dir_fd=folder.descriptor)
                os.rmdir(name, dir_fd=self.descriptor)
        if errors.first:
            raise errors.first

    def _remove_files(self, errors: _FirstError) -> list[str]:
        """Remove everything but folders. Return the names of the folders.

        File names are not collected: there may be millions.
        """
        folders = list[str]()
        with errors, self.entries() as entries:
            for entry in entries:
                with errors:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    else:
                        os.unlink(entry.name, dir_fd=self.descriptor)
        return folders


def too_deep(depth: int, path: str) -> OSError:
    """Return the error for a tree of folders that other programs could not copy or remove.

    They use recursion, an open file for each folder, or paths, which have at most 4096 bytes.
    """
    return OSError(errno.ENAMETOOLONG, f"More than {depth} folders are in each other", path)


class _FirstError:
    """A context that suppresses each `OSError`, and keeps the first that is not a missing file."""

    first: OSError | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if isinstance(error, RecursionError):  # of folders that could not be moved up
            error = OSError(errno.ENAMETOOLONG, "Too many folders are in each other")
        if not isinstance(error, OSError):
            return False
        if self.first is None and not isinstance(error, FileNotFoundError):
            self.first = error
        return True


def _single(name: str) -> str:
    """Return `name`, which must have one component."""
    if "/" in name or name in ("", ".", ".."):
        raise OSError(errno.EINVAL, "Not a name in a folder", name)
    return name


def _temporary_name() -> str:
    return f"{TEMPORARY}{os.urandom(8).hex()}"


def _open(
    name: str | os.PathLike[str], above: int | None, flags: int, rights: int
) -> tuple[int, int | None]:
    """Open `name`, after giving its owner `rights`. Return its mode before, if that has changed."""
    if not rights or sys.platform != "linux":
        return os.open(name, flags, dir_fd=above), None
    if not flags & os.O_DIRECTORY:
        with contextlib.suppress(PermissionError):  # else the rights that it has are enough
            return os.open(name, flags, dir_fd=above), None
    kept = flags & (os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    handle = os.open(name, os.O_PATH | kept, dir_fd=above)
    try:
        path, mode = f"/proc/self/fd/{handle}", stat.S_IMODE(os.fstat(handle).st_mode)
        before = None
        if mode & rights != rights:
            # Of another user's file, the rights of its group or of others may be enough.
            with contextlib.suppress(PermissionError):
                os.chmod(path, mode | rights)
                before = mode
        try:
            return os.open(path, flags & ~os.O_NOFOLLOW), before
        except OSError:
            if before is not None:
                os.chmod(path, before)
            raise
    finally:
        os.close(handle)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, with as many calls as that takes."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


@contextlib.contextmanager
def _open_parent(path: str) -> Generator[tuple[SafeFolder, str]]:
    """Yield the folder of `path`, which must not be a symbolic link, and the name in it.

    An `OSError` of the body gets `path` as its file name.
    """
    above, _, name = path.rpartition("/")
    with SafeFolder.at(above) as folder:
        try:
            yield folder, name
        except OSError as error:
            error.filename = path  # `os.write` sets none, and `os.open` only the name
            raise


def create_file_at(path: str) -> int:
    """Create the file `path`, like `create_file` and `_open_parent`."""
    with _open_parent(path) as (folder, name):
        return folder.create_file(name)


def write_new_file_at(path: str, data: bytes) -> int:
    """Create the file `path` with `data`, like `write_new_file` and `_open_parent`."""
    with _open_parent(path) as (folder, name):
        return folder.write_new_file(name, data)


def remove_tree(path: str) -> None:
    """Remove `path` and everything below it, as far as possible. Ignore a missing path."""
    if sys.platform != "linux":  # the steps below need its kernel
        shutil.rmtree(path, ignore_errors=True)
        return
    for _ in range(3):  # a process may still be writing to it
        with contextlib.suppress(OSError):
            with SafeFolder.at(path, rights=ALL_RIGHTS) as folder:
                folder.empty()
            os.rmdir(path)
        if not os.path.lexists(path):
            return


def empty_folder(path: str) -> bool:
    """Remove everything below `path`, which keeps its permissions. Return True if that worked."""
    with contextlib.suppress(OSError), SafeFolder.at(path, rights=ALL_RIGHTS) as folder:
        folder.empty()
        return not os.listdir(folder.descriptor)
    return False
