"""The packets between the server, the zygote and a cell's first process.

They use `SOCK_SEQPACKET` sockets, so that one `recvmsg` returns one packet. The server asks the
zygote for a process with `CELL`, `SESSION` or `ZYGOTE` and one end of a new socket. That process
sends `HELLO`, to which the kernel adds its process ID, or `ERROR` and a text. The server sends `GO`
with two pipes for each block. The block's main process sends `READY`, and receives either its job
or `PRETOUCH` and then its job. When the block has ended, a `Report` goes back.
"""

from __future__ import annotations

import marshal
import struct
from collections.abc import Iterable
from typing import NamedTuple

# To the zygote: fork the first process of a cell for blocks or for a session, or another zygote.
CELL, SESSION, ZYGOTE = b"c", b"s", b"z"
# Between the server and a cell.
HELLO, GO, READY, PRETOUCH, ERROR = b"H", b"G", b"R", b"P", b"E"

MAX_PACKET = 1 << 16  # bytes
NAMESPACES = 5  # whose descriptors the first process of a branch sends with its greeting
MAX_MOUNTS = 250  # in one packet: the kernel passes at most 253 descriptors, see unix(7)
REPORT = struct.Struct("<idq")


class Report(NamedTuple):
    """How a block ended: the wait status of its main process, CPU time and peak memory of all."""

    status: int
    cpu_seconds: float
    peak_bytes: int


def decode_report(packet: bytes) -> Report | None:
    """Return the report in `packet`, or None if the first process ended without one."""
    return Report(*REPORT.unpack(packet)) if len(packet) == REPORT.size else None


def encode_go(targets: Iterable[str]) -> bytes:
    """Return the packet that asks for a new main process.

    The descriptors sent with it are the writing ends of two pipes, then one mount per target.
    """
    return GO + "\0".join(targets).encode()


def decode_go(packet: bytes) -> list[str]:
    """Return the mount targets in a packet of `encode_go`."""
    return packet[1:].decode().split("\0") if packet[1:] else []


class CellJob(NamedTuple):
    """What a main process is to run: a script, or the program `argv` if `script` is None.

    script          the path of the script
    code            its text, unless it has to be read from the file
    shows_value     it prints the value of its last line, as a notebook does
    stdin           the path of a file to read its standard input from, which it does not see
    address_space   bytes more than now that the code may map
    cwd, env        the folder, and variables to add
    """

    script: str | None = None
    code: bytes | None = None
    shows_value: bool = False
    argv: tuple[str, ...] | None = None
    stdin: str | None = None
    address_space: int | None = None
    cwd: str | None = None
    env: dict[str, str] | None = None


def encode_job(job: CellJob) -> bytes:
    """Return the packet that hands `job` to a waiting main process.

    The format is `marshal`, which is not safe for data from a sandbox. Jobs only go into one.
    """
    return marshal.dumps(tuple(job))


def decode_job(packet: bytes) -> CellJob:
    """Return the job in a packet of `encode_job`."""
    return CellJob(*marshal.loads(packet))
