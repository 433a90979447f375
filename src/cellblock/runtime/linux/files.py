"""Write a file that nobody else has, next to code that may do to its folder what it likes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def open_new(name: str, folder: int | None = None) -> int:
    """Make the file `name`, which must not be there, below the open `folder` if that is given; give it opened for writing."""
    descriptor = os.open(name, _NEW_FILE, 0o644, dir_fd=folder)
    if folder is not None:
        give(descriptor, folder)
    return descriptor


def give(made: int, folder: int) -> None:
    """Where we are root, give what we have `made` in an open `folder` to the owner of that: later blocks are to change it."""
    if os.geteuid() != 0:
        return
    owner = os.fstat(folder)
    if (owner.st_uid, owner.st_gid) != (0, 0):
        with contextlib.suppress(OSError):  # in a user namespace that does not know him
            os.fchown(made, owner.st_uid, owner.st_gid)


def write_new(name: str, data: bytes, folder: int | None = None) -> int:
    """Write a file that was not there, all of it or none; give its time of change as the disk has it, in nanoseconds."""
    descriptor = open_new(name, folder)
    try:
        write_all(descriptor, data)
        return os.fstat(descriptor).st_ctime_ns
    except BaseException:  # half a file must not stay, whoever interrupts
        remove(name, folder)
        raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write `data`, however often that has to be begun."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def open_at(path: str) -> int:
    """Do as `open_new` in the folder that `path` names, unless code of somebody with a folder above has made that a link."""
    return in_its_folder(path, open_new)


def write_at(path: str, data: bytes) -> int:
    """Do as `write_new` in the folder that `path` names, with the same exception."""
    return in_its_folder(path, lambda name, folder: write_new(name, data, folder))


def in_its_folder(path: str, make: Callable[[str, int], int]) -> int:
    """Call `make` with the name and the open folder that `path` names; see `open_at`."""
    above, _, name = path.rpartition("/")
    folder = os.open(above, _FOLDER)
    try:
        return make(name, folder)
    except OSError as error:
        error.filename = path  # which `os.write` does not say, and `os.open` without the folder
        raise
    finally:
        os.close(folder)


def remove(name: str, folder: int | None = None) -> None:
    """Remove the file `name`, if that can be done."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
