"""The first process of a cell: it prepares the cell, forks the block's main process, and ends what is left of it.

It speaks to the cell server over one socket: ``H`` (here I am; the kernel adds the process id), then the server answers
``G``; ``R`` comes from the main process once that is shut in, and at the end a `Report`. ``E`` and a text say what failed.
The main process closes its copy of the socket before it runs anything that is not ours.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from . import kernel, tree
from .confine import Confinement

HELLO, GO, READY, ERROR = b"H", b"G", b"R", b"E"
REPORT = struct.Struct("<idq")
_LENGTH = struct.Struct(">I")


class Report(NamedTuple):
    """How a block ended: wait status of its main process, CPU seconds and peak bytes of all of it."""

    status: int
    cpu_seconds: float
    peak_bytes: int


class Descriptors(NamedTuple):
    """What the cell server hands over for one cell."""

    link: int
    stdout: int
    stderr: int


def enter(descriptors: Descriptors, spec: dict[str, Any], confinement: Confinement) -> dict[str, Any]:
    """Be the first process of a cell. Returns in the block's main process alone, with its job."""
    link = socket.socket(fileno=descriptors.link)
    try:
        _prepare(spec)
        link.sendall(HELLO)
        if link.recv(1) != GO:
            os._exit(0)
        # From here on, before there is anything to kill, so that no request to stop can be lost.
        kill = tree.kill_namespace if spec["namespaces"] else _kill_own
        signal.signal(signal.SIGTERM, lambda *_: kill())
        main = os.fork()
        if main == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            return _become_main(link, descriptors, spec, confinement)
    except BaseException as error:
        _fail(link, error)
    _supervise(main, link, kill, own_namespace=bool(spec["namespaces"]))


def _prepare(spec: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if not spec["namespaces"]:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
        return
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    for path, options in spec["tmpfs"]:
        kernel.mount("tmpfs", path, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def _fail(link: socket.socket, error: BaseException) -> NoReturn:
    link.sendall(ERROR + f"{type(error).__name__}: {error}".encode())
    os._exit(1)


def _become_main(
    link: socket.socket, descriptors: Descriptors, spec: dict[str, Any], confinement: Confinement
) -> dict[str, Any]:
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        for target, source in ((0, null), (1, descriptors.stdout), (2, descriptors.stderr)):
            os.dup2(source, target)
        for descriptor in (null, descriptors.stdout, descriptors.stderr):
            os.close(descriptor)
        os.chdir(spec["cwd"])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        confinement.apply()
        link.sendall(READY)
    except BaseException as error:
        _fail(link, error)
    job = _receive(link)
    link.close()
    return job


def _receive(link: socket.socket) -> dict[str, Any]:
    import json

    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    return json.loads(_exactly(link, length))


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = link.recv(size - len(data))
        if not piece:
            os._exit(0)  # the server went away before there was anything to do
        data += piece
    return data


def encode_job(job: dict[str, Any]) -> bytes:
    """Make the bytes that hand `job` to a waiting main process."""
    import json

    text = json.dumps(job).encode()
    return _LENGTH.pack(len(text)) + text


def _supervise(main: int, link: socket.socket, kill: Callable[[], None], *, own_namespace: bool) -> NoReturn:
    """Reap until the main process has ended, end whatever it left behind, report, and go."""
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    os.closerange(3, link.fileno())
    os.closerange(link.fileno() + 1, 64)
    status = _reap_until(main)
    kill()
    while tree.reap_all():
        if own_namespace:
            os.waitpid(-1, 0)
        else:
            kill()
            time.sleep(0.001)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
    link.sendall(REPORT.pack(status, cpu, peak))
    os._exit(0)


def _kill_own() -> None:
    tree.kill_below(os.getpid())


def _reap_until(main: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == main:
            return status


if sys.platform != "linux":
    raise ImportError("Cells need Linux.")
