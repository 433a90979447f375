"""The first process of a cell: for each block, reset the cell, fork the main process, and reap all.

It exchanges the packets of `handshake` with the server. The main process applies the confinement,
sends `READY`, and waits for its job. When it and all processes that it left behind have ended, the
first process sends a `Report`; see also `early_exit`. The main process closes its copy of the
socket before it runs user code.

Only kernel objects could carry over from one block to the next: all its processes have ended, with
their memory and descriptors, and `CellFilesystem` resets what the namespaces hold.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..handshake import (
    ERROR,
    GO,
    HELLO,
    MAX_MOUNTS,
    MAX_PACKET,
    PRETOUCH,
    READY,
    REPORT,
    CellJob,
    decode_go,
    decode_job,
)
from ..linux import process_tree, syscalls
from ..linux.retry import retry
from ..spec import ZygoteSpec
from . import script, warmup
from .confinement import Confinement, lower_oom_score
from .early_exit import EarlyExit, notify
from .filesystem import CellFilesystem, attach_mounts

# Without the enums of `signal`, whose pages each block's process would have to copy.
_set_signal: Callable[[int, Any], Any] = importlib.import_module("_signal").signal
# Without the layers of Python's `socket` module.
_detach: Callable[[socket.socket], int] = importlib.import_module("_socket").socket.detach

_TRACKER_TIMEOUT = 10.0  # seconds; a resource tracker needs milliseconds on an idle machine
_SIGINT, _SIGTERM, _SIG_DFL = int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIG_DFL)
_ANCILLARY_BYTES = socket.CMSG_SPACE((2 + MAX_MOUNTS) * 4)  # descriptors in one packet

# Objects that a block's process does not use any more: freeing them would write to, and so copy,
# their pages.
_keep_alive: list[object] = []


def run_init(server: socket.socket, spec: ZygoteSpec, confinement: Confinement) -> CellJob:
    """Run as the first process of a cell. Return only in a block's main process, with its job."""
    try:
        kill = _set_up(spec)
        filesystem = CellFilesystem(spec)
        early_exit = EarlyExit(kill, server.sendall, REPORT)
        if spec.early_exit:
            early_exit.enable()
        _keep_alive.extend((confinement, filesystem, early_exit))
        server.sendall(HELLO)
        while True:
            targets, descriptors, mounts = _await_go(server)
            if filesystem.reset() or targets:
                attach_mounts(targets, mounts)
                for mount in mounts:
                    os.close(mount)
                confinement.prepare()
            early_exit.reset()
            main = os.fork()
            if main == 0:
                filesystem.close_handles()
                early_exit.disable_in_child()
                return _start_main(server, descriptors, spec, confinement)
            for descriptor in descriptors:
                os.close(descriptor)
            early_exit.watch(main)
            report = _supervise(main, kill, at_once=spec.namespaces)
            if not early_exit.is_confirmed:
                server.sendall(report)
    except BaseException as error:
        _report_failure(server, error)


def _set_up(spec: ZygoteSpec) -> Callable[[], None]:
    """Set up what all blocks share. Return a function that kills all processes of a block."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if spec.own_processes:
        kill = process_tree.kill_namespace
    else:
        kill = _kill_descendants
        syscalls.become_subreaper()
    if spec.namespaces:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        enter_network_namespace(spec, "session")
        syscalls.mount(
            "proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
        )
    else:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)

    def kill_block(_number: int, _frame: object) -> None:
        kill()

    # The server sends it to end a block. A block that sends it ends itself.
    signal.signal(signal.SIGTERM, kill_block)
    _keep_alive.extend((spec, kill, kill_block))
    return kill


def enter_network_namespace(spec: ZygoteSpec, owner: str) -> None:
    """Enter a new network namespace if each `owner`, "session" or "tenant", has its own.

    All cells of a tenant share its network.
    """
    if spec.own_network == owner:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        syscalls.bring_up_loopback()


def limit_capabilities() -> None:
    """Drop all capabilities but those that creating cells needs."""
    for capability in range(syscalls.CAP_LAST + 1):
        if capability not in syscalls.CELL_CAPABILITIES:
            syscalls.drop_from_bounding_set(capability)
    mask = sum(1 << capability for capability in syscalls.CELL_CAPABILITIES)
    syscalls.capset_call(mask, mask, mask)()


def _kill_descendants() -> None:
    process_tree.kill_descendants(os.getpid())


def _await_go(server: socket.socket) -> tuple[list[str], Sequence[int], Sequence[int]]:
    while True:
        data, ancillary, _, _ = retry(lambda: server.recvmsg(MAX_PACKET, _ANCILLARY_BYTES))
        if not data:
            os._exit(0)  # the server has closed this cell
        if data.startswith(GO):
            ((_, _, descriptors),) = ancillary
            numbers = struct.unpack(f"{len(descriptors) // 4}i", descriptors)
            return decode_go(data), numbers[:2], numbers[2:]
        # Otherwise it is the job of a main process that was killed before it read it.


def _report_failure(server: socket.socket, error: BaseException) -> NoReturn:
    with contextlib.suppress(OSError):  # the server may have ended
        server.sendall(ERROR + f"{type(error).__name__}: {error}".encode())
    os._exit(1)


def _start_main(
    server: socket.socket,
    descriptors: Sequence[int],
    spec: ZygoteSpec,
    confinement: Confinement,
) -> CellJob:
    # Plain calls with plain numbers: each object that is touched here is copied for each block.
    try:
        _set_signal(_SIGTERM, _SIG_DFL)
        _set_signal(_SIGINT, signal.default_int_handler)
        os.setsid()
        # A new open file: what a block does to a shared one, such as a lock, outlives the block.
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        for target, source in enumerate(descriptors, 1):
            os.dup2(source, target)
            os.close(source)
        os.chdir(spec.cwd)
        confinement.apply()
        if spec.scripts:
            script.prepare_main()
        os.write(server.fileno(), READY)
        job = os.read(server.fileno(), MAX_PACKET)
        if job == PRETOUCH:
            warmup.pretouch()
            job = os.read(server.fileno(), MAX_PACKET)
        if not job:
            os._exit(0)  # the server has closed this cell
        if confinement.oom_first:
            lower_oom_score()
        os.close(_detach(server))
        return decode_job(job)
    except BaseException as error:
        _report_failure(server, error)


def prime_attribute_caches() -> None:
    """In the zygote, look up the attributes that a block's process will look up.

    The lookup writes to a cache, whose pages each block's process would copy.
    """
    warmup.prime_attribute_cache(
        os,
        _start_main,
        CellFilesystem.close_handles,
        EarlyExit.disable_in_child,
        Confinement.apply,
        notify,
        script.finish,
    )
    warmup.prime_attribute_cache(socket.socket, _start_main)
    for kind, function in (
        (CellFilesystem, CellFilesystem.close_handles),
        (EarlyExit, EarlyExit.disable_in_child),
        (Confinement, Confinement.apply),
        (syscalls.PreparedCall, syscalls.PreparedCall.__call__),
    ):
        warmup.prime_attribute_cache(kind, function)


def _supervise(main: int, kill: Callable[[], None], *, at_once: bool) -> bytes:
    """Reap until the main process has ended, kill what it left behind, and return the report.

    `at_once`: one call of `kill` ends all processes. Otherwise processes that are being forked may
    escape it, and it is called until none is left.
    """
    status, cpu, peak = None, 0.0, 0
    while True:
        try:
            pid, ended, usage = os.wait4(-1, 0 if at_once or status is None else os.WNOHANG)
        except ChildProcessError:
            break
        if pid:
            cpu += usage.ru_utime + usage.ru_stime
            peak = max(peak, usage.ru_maxrss * 1024)
        if pid == main:
            status = ended
        if status is not None and (pid == main or not at_once):
            if pid == main and not at_once:
                _await_resource_trackers()
            kill()
        if pid == 0:
            time.sleep(0.001)
    return REPORT.pack(status or 0, cpu, peak)


def _await_resource_trackers() -> None:
    """Let Python's resource trackers remove shared memory that their program has left behind.

    A tracker ends after the last process of its program, so the other processes are killed here.
    """
    deadline = time.monotonic() + _TRACKER_TIMEOUT
    ended = set[int]()  # whose children are listed below this process
    while time.monotonic() < deadline:
        left = process_tree.descendants(os.getpid())
        trackers = set(filter(_may_be_resource_tracker, left))
        if not trackers and ended.issuperset(left):
            break
        ended = set(filter(process_tree.has_ended, left))
        for pid in left:
            if pid not in trackers:
                process_tree.send_signal(pid, signal.SIGKILL)
        time.sleep(0.001)


def _may_be_resource_tracker(pid: int) -> bool:
    """Return True also for a process that has no command line yet, in the middle of its exec."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
        is_starting = not command and not process_tree.has_ended(pid)
    except OSError:
        return False
    return is_starting or b"multiprocessing.resource_tracker" in command


if sys.platform != "linux":
    raise ImportError("Cellblock runs code on Linux only.")
