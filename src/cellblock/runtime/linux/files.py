"""Create files in folders that untrusted code may change at any time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from . import open_flags


def create_file(name: str, folder: int | None = None) -> int:
    """Create the file `name`, in the open `folder` if given. Return a writable descriptor.

    Raise `FileExistsError` if the name exists.
    """
    descriptor = os.open(name, open_flags.NEW_FILE, 0o644, dir_fd=folder)
    if folder is not None:
        give_to_folder_owner(descriptor, folder)
    return descriptor


def give_to_folder_owner(descriptor: int, folder: int) -> None:
    """As root, change the owner of an open file to that of the open `folder`.

    Later blocks can then write the file.
    """
    if os.geteuid() != 0:
        return
    owner = os.fstat(folder)
    if (owner.st_uid, owner.st_gid) != (0, 0):
        with contextlib.suppress(OSError):  # the user namespace does not map the owner
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def write_new_file(name: str, data: bytes, folder: int | None = None) -> int:
    """Create a file with `data`, completely or not at all. Return its ctime in nanoseconds."""
    descriptor = create_file(name, folder)
    try:
        write_all(descriptor, data)
        return os.fstat(descriptor).st_ctime_ns
    except BaseException:  # also an interrupt must not leave an incomplete file
        remove_file(name, folder)
        raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, with as many calls as that takes."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def create_file_at(path: str) -> int:
    """Create the file `path`. Raise `OSError` if its folder is a symbolic link."""
    return call_in_folder(path, create_file)


def write_new_file_at(path: str, data: bytes) -> int:
    """Create the file `path` with `data`, like `write_new_file` and `create_file_at`."""
    return call_in_folder(path, lambda name, folder: write_new_file(name, data, folder))


def call_in_folder(path: str, make: Callable[[str, int], int]) -> int:
    """Call `make` with the name and the open folder of `path`, which must not be a symbolic link.

    An `OSError` of `make` gets `path` as its file name.
    """
    above, _, name = path.rpartition("/")
    folder = os.open(above, open_flags.FOLDER)
    try:
        return make(name, folder)
    except OSError as error:
        error.filename = path  # `os.write` sets none, and `os.open` only the name
        raise
    finally:
        os.close(folder)


def remove_file(name: str, folder: int | None = None) -> None:
    """Remove the file `name`. Ignore errors."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def make_target(target: str, *, is_folder: bool) -> None:
    """Create the folder or empty file that something will be mounted on, unless it exists."""
    if is_folder:
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
