"""The process that starts commands, and reports how they end. They are its children.

All are in one Landlock domain, because they inherit its: a command can signal those before it. It
starts them by `posix_spawn`, which is faster than a fork, most of all on a busy machine.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import resource
import select
import signal
import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

from .confined_fork import Confined

# To it: the number of a request, with the descriptors of a pipe to read the order from, and of the
# standard streams. From it: a report.
ORDER = struct.Struct("<I")
REPORT = struct.Struct("<cIqidq")
STARTED, USER_FAILED, FOLDER_FAILED, PROGRAM_FAILED, ENDED = b"s", b"u", b"f", b"p", b"e"
_DESCRIPTORS = 4
_READ_BYTES = 1 << 16
_MAX_ERROR = 4096  # error numbers are below
_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)  # that this process ignores


class LaunchReport(NamedTuple):
    """What has happened to a command.

    number        that of its request, or 0
    pid           its process ID, or the error number
    status, ...   how its process has ended, and what it has used
    """

    kind: bytes
    number: int
    pid: int
    status: int = 0
    cpu: float = 0.0
    peak: int = 0

    def is_valid(self) -> bool:
        """Return False if no process of ours can have sent it."""
        if self.kind == ENDED:
            has_ended = os.WIFEXITED(self.status) or os.WIFSIGNALED(self.status)
            return has_ended and 0 <= self.cpu < float("inf") and self.peak >= 0
        return self.pid > 1 if self.kind == STARTED else 0 < self.pid < _MAX_ERROR


class CommandStart(NamedTuple):
    """What is to be executed, and where."""

    argv: list[bytes]
    folder: bytes
    environment: dict[bytes, bytes]


def serve_launches(link: socket.socket, _work_dir: str, confined: Confined) -> None:
    """Start commands until the link is closed."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(writer)
    poll = select.poll()
    for descriptor in (link.fileno(), reader):
        poll.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == reader:
                with contextlib.suppress(BlockingIOError):
                    os.read(reader, _READ_BYTES)
                _report_ended(link)
            elif not _handle_order(link, confined):
                return


def _send(link: socket.socket, report: LaunchReport) -> None:
    link.send(REPORT.pack(*report))


def describe_exit(pid: int, status: int, usage: resource.struct_rusage) -> LaunchReport:
    """Return the report that a process has ended, from what `wait4` returns.

    The kernel counts the memory of this process as a child's, until it executes its program.
    """
    peak = usage.ru_maxrss if usage.ru_maxrss > _own_peak() else 0
    return LaunchReport(ENDED, 0, pid, status, usage.ru_utime + usage.ru_stime, peak * 1024)


def _own_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _report_ended(link: socket.socket) -> None:
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _send(link, describe_exit(pid, status, usage))


def _handle_order(link: socket.socket, confined: Confined) -> bool:
    """Start a command. Return False if the link is closed."""
    packet, descriptors, _, _ = socket.recv_fds(link, ORDER.size, _DESCRIPTORS)
    if not packet:
        return False
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    (number,) = ORDER.unpack(packet)
    try:
        start = CommandStart(*marshal.loads(_read_all(descriptors[0])))
        if confined.refusal:
            _send(link, LaunchReport(USER_FAILED, number, errno.EPERM))
            return True
        start = start._replace(environment=confined.variables | start.environment)
        _send(link, _start(number, start, descriptors[1:]))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def _read_all(descriptor: int) -> bytes:
    data = bytearray()
    while piece := os.read(descriptor, _READ_BYTES):
        data += piece
    return bytes(data)


def _start(number: int, start: CommandStart, descriptors: Sequence[int]) -> LaunchReport:
    kind = FOLDER_FAILED
    try:
        _enter(start.folder)
        kind = PROGRAM_FAILED
        path = _find_program(start.argv[0], start.environment)
        actions: list[tuple[int | str, ...]] = [
            (os.POSIX_SPAWN_DUP2, source, target)
            for target, source in enumerate(descriptors, 3 - len(descriptors))
        ]
        if len(descriptors) == 2:  # a new open file: a lock on it would outlive the command
            actions.append((os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDWR, 0))
        pid = os.posix_spawn(
            path,
            start.argv,
            start.environment,
            file_actions=actions,
            setsid=True,
            setsigdef=_SIGNALS,
        )
    except OSError as error:
        return LaunchReport(kind, number, error.errno or errno.EIO)
    return LaunchReport(STARTED, number, pid)


def _enter(folder: bytes) -> None:
    """Make `folder` the current one. Another user starts in the work folder, even a private one."""
    try:
        os.chdir(folder)
    except PermissionError:
        if os.getcwdb() != folder:
            raise


def _find_program(program: bytes, environment: dict[bytes, bytes]) -> bytes:
    """Return the path of a program, looked up in the `PATH` of `environment`.

    Raise `FileNotFoundError`.
    """
    if b"/" in program:
        return program
    found = b""
    for folder in environment.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
        if not found and os.path.exists(path):
            found = path  # the error is that it is not executable
    if not program or not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return found
