"""The writable shared memory of a session, which a fork would share with its parent.

Semaphores without a name, as `multiprocessing` makes them, are an exception: only children of the
session could share them too. A fork that becomes a session gets its own, with the same value.
Otherwise a lock that the original holds when it is killed would block the copy forever.

So are mapped files, as those of `numpy.memmap`: the fork maps the file of its own work folder.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ...linux import syscalls

_FOLDER = "/dev/shm"
# The C library creates the file of a semaphore under such a name. It links the final name to it,
# if it has one, and removes the first.
_PREFIX, _DELETED = f"{_FOLDER}/sem.", " (deleted)"
_PAGE_SIZE = mmap.PAGESIZE


class _SharedMapping(NamedTuple):
    address: int
    size: int
    offset: int  # in the file
    device: int
    inode: int
    name: str

    @property
    def is_semaphore(self) -> bool:
        named = self.name.startswith(_PREFIX) and self.name.endswith(_DELETED)
        return named and self.size == _PAGE_SIZE

    @property
    def is_file(self) -> bool:
        """Whether it is a file that is found by its path, other than those of shared memory."""
        try:
            status = os.stat(self.name)
        except OSError:
            return False
        is_same = status.st_ino == self.inode and stat.S_ISREG(status.st_mode)
        return is_same and not self.name.startswith(f"{_FOLDER}/")


def describe_shared_memory() -> list[str]:
    """Describe the writable shared memory that a copy cannot have separately."""
    mappings = list(_shared_mappings(_read_maps()))
    copied = _read_semaphores(mappings)
    left = [
        mapping for mapping in mappings if mapping.address not in copied and not mapping.is_file
    ]
    return [
        "a named semaphore"
        if mapping.is_semaphore
        else f"writable shared memory ({mapping.name or 'anonymous'})"
        for mapping in left
    ]


def read_semaphores() -> dict[int, bytes]:
    """Return the content of each semaphore without a name, by its address."""
    maps = _read_maps()
    if _PREFIX.encode() not in maps:
        return {}  # as usual; to parse all mappings takes longer
    return _read_semaphores(_shared_mappings(maps))


def list_mapped_files() -> list[_SharedMapping]:
    """Return the mapped files that can be written to. Each counts as changed from now on.

    The kernel does not always record what was written through a mapping.
    """
    found = [mapping for mapping in _shared_mappings(_read_maps()) if mapping.is_file]
    for mapping in found:
        with contextlib.suppress(OSError):
            os.utime(mapping.name)
    return found


def renew_mapped_files(files: Iterable[_SharedMapping], moved_path: Callable[[str], str]) -> None:
    """In a fork: map each file anew, at the path that `moved_path` returns for it.

    One that cannot be opened stays shared with the parent.
    """
    for mapping in files:
        with contextlib.suppress(OSError):
            file = os.open(moved_path(mapping.name), os.O_RDWR | os.O_CLOEXEC)
            try:
                syscalls.map_shared(file, mapping.address, mapping.size, mapping.offset)
            finally:
                os.close(file)


def renew_semaphores(contents: dict[int, bytes]) -> None:
    """In a fork: replace each semaphore by a new one of the same content.

    Processes that are forked later share it. One that cannot be made stays shared with the parent.
    """
    for address, content in contents.items():
        with contextlib.suppress(OSError):
            _renew_semaphore(address, content)


def _renew_semaphore(address: int, content: bytes) -> None:
    # The file is like the first one, so that the new session finds the semaphore again.
    path = f"{_PREFIX}{os.urandom(8).hex()}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.unlink(path)
        os.write(file, content)
        os.truncate(file, _PAGE_SIZE)
        syscalls.map_shared(file, address, _PAGE_SIZE)
    finally:
        os.close(file)


def _read_semaphores(mappings: Iterable[_SharedMapping]) -> dict[int, bytes]:
    semaphores = [mapping for mapping in mappings if mapping.is_semaphore]
    if not semaphores:
        return {}
    found: dict[int, bytes] = {}
    with contextlib.suppress(OSError):  # what was not read is described as shared memory
        named = _named_files()
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            for mapping in semaphores:
                if (mapping.device, mapping.inode) not in named:
                    content = os.pread(memory, _PAGE_SIZE, mapping.address)
                    found[mapping.address] = content.rstrip(b"\0")
        finally:
            os.close(memory)
    return found


def _named_files() -> set[tuple[int, int]]:
    """Return the device and inode of each file that another process can open as a semaphore."""
    device = os.stat(_FOLDER).st_dev
    with os.scandir(_FOLDER) as entries:
        return {(device, entry.inode()) for entry in entries}


def _read_maps() -> bytes:
    with open("/proc/self/maps", "rb", buffering=0) as maps:
        return maps.read()


def _shared_mappings(maps: bytes) -> Iterator[_SharedMapping]:
    for line in maps.split(b"\n")[:-1]:
        addresses, rights, rest = line.split(b" ", 2)
        if not (rights[1:2] == b"w" and rights[3:] == b"s"):
            continue
        begin, end = (int(address, 16) for address in addresses.split(b"-"))
        offset, device, inode, *name = rest.split(None, 3)
        major, minor = (int(number, 16) for number in device.split(b":"))
        yield _SharedMapping(
            begin,
            end - begin,
            int(offset, 16),
            os.makedev(major, minor),
            int(inode),
            name[0].decode(errors="replace") if name else "",
        )
