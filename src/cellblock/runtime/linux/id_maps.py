"""Map users and groups of a new user namespace, from a process outside it: user_namespaces(7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

_MAX_ERROR_BYTES = 4096


class IdLine(NamedTuple):
    """The IDs from `inside` on, `size` of them, are those from `outside` on in the one above."""

    inside: int
    outside: int
    size: int


class UserMaps(NamedTuple):
    """The lines of both files."""

    users: tuple[IdLine, ...]
    groups: tuple[IdLine, ...]


def lines_with_user(
    user: int, outer_user: int, sub_ids: tuple[int, int], most: int = 1 << 16
) -> tuple[IdLine, ...]:
    """Return lines that map `user` to `outer_user`, and as many other IDs as there are `sub_ids`.

    IDs inside are below `most`. `sub_ids` is the first ID outside, and their number.
    """
    first, count = sub_ids
    below, above = min(count, user), min(count, most - 1) - user
    lines = [IdLine(0, first, below), IdLine(user, outer_user, 1)]
    if above > 0:
        lines.append(IdLine(user + 1, first + user, above))
    return tuple(line for line in lines if line.size > 0)


def same_ids(kind: str) -> tuple[IdLine, ...]:
    """Return lines that map each ID of this namespace to itself. `kind`: "uid" or "gid"."""
    with open(f"/proc/self/{kind}_map") as file:
        rows = [[int(word) for word in line.split()] for line in file]
    return tuple(IdLine(inside, inside, count) for inside, _, count in rows)


def write_maps(process: int, maps: UserMaps) -> None:
    """As a process with CAP_SETUID and CAP_SETGID: map the IDs of the namespace of `process`."""
    for kind, lines in zip(("uid", "gid"), maps, strict=True):
        with open(f"/proc/{process}/{kind}_map", "w") as file:
            file.write("".join(f"{line[0]} {line[1]} {line[2]}\n" for line in lines))


def write_maps_by_programs(process: int, maps: UserMaps) -> None:
    """As a plain user: let newuidmap and newgidmap do it. Raise `OSError` with what they say."""
    for program, lines in zip(("newuidmap", "newgidmap"), maps, strict=True):
        argv = [program, str(process), *(str(number) for line in lines for number in line)]
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            stderr = [(os.POSIX_SPAWN_DUP2, writer, 2)]
            pid = os.posix_spawnp(program, argv, os.environ, file_actions=stderr)
        except OSError as error:
            raise OSError(error.errno, f"{program}: {error.strerror}") from error
        finally:
            os.close(writer)
        with open(reader, "rb") as file:
            said = file.read(_MAX_ERROR_BYTES).decode(errors="replace").strip()
        if os.waitpid(pid, 0)[1]:
            raise OSError(said or f"{program} failed")


class MapWriter:
    """A forked process that calls `write` with the ID of this one, which enters a namespace."""

    def __init__(self, write: Callable[[int], None]) -> None:
        entering = os.getpid()
        start_reader, self._start = os.pipe2(os.O_CLOEXEC)
        self._errors, error_writer = os.pipe2(os.O_CLOEXEC)
        self._pid = os.fork()
        if self._pid == 0:
            _close(self._start, self._errors)
            try:
                if os.read(start_reader, 1):  # no byte: the namespace was not entered
                    write(entering)
            except BaseException as error:
                os.write(error_writer, str(error).encode()[:_MAX_ERROR_BYTES] or b"failed")
            finally:
                os._exit(0)
        _close(start_reader, error_writer)

    def write(self) -> None:
        """After entering the namespace: wait until its IDs are mapped. Raise `OSError`."""
        os.write(self._start, b"x")
        with open(self._errors, "rb") as file:
            text = file.read().decode(errors="replace")
        os.close(self._start)
        os.waitpid(self._pid, 0)
        if text:
            raise OSError(f"the users of the sandbox cannot be mapped: {text}")


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
