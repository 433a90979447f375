"""The writable shared memory of a session, which a fork would share with its parent.

Semaphores without a name, as `multiprocessing` makes them, are the exception: only children of the
session could share them too. A fork that becomes a session gets its own, with the same value.
Otherwise a lock that the original holds when it is killed would block the copy forever.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable, Iterator
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
    device: int
    inode: int
    name: str

    @property
    def is_semaphore(self) -> bool:
        named = self.name.startswith(_PREFIX) and self.name.endswith(_DELETED)
        return named and self.size == _PAGE_SIZE


def describe_shared_memory() -> list[str]:
    """Describe the writable shared memory that a copy cannot have separately."""
    mappings = list(_shared_mappings(_read_maps()))
    copied = _read_semaphores(mappings)
    left = [mapping for mapping in mappings if mapping.address not in copied]
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
        _offset, device, inode, *name = rest.split(None, 3)
        major, minor = (int(number, 16) for number in device.split(b":"))
        yield _SharedMapping(
            begin,
            end - begin,
            os.makedev(major, minor),
            int(inode),
            name[0].decode(errors="replace") if name else "",
        )
