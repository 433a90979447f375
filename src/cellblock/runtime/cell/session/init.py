"""The first process of a session's cell.

It starts the session, reaps every process that ends, and forks the first processes of branches. It
never runs user code.

It exchanges packets with the server, see `messages.InitOrder` and `messages.InitReport`, with
descriptors attached.

It ends when the server closes the socket, and its process namespace ends with it. Without such a
namespace, as in a container, it kills everything below it first; nothing can leave that tree,
because orphans become its children.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ...handshake import MAX_MOUNTS, MAX_PACKET
from ...linux import process_tree, syscalls
from ...messages import (
    INIT_ORDERS,
    ForkBranchInit,
    Hello,
    InitReport,
    MountFolders,
    OrderResult,
    ProcessExit,
    StartSession,
    decode_packet,
    encode_packet,
)
from ..filesystem import attach_mounts, bind_mount
from ..init import enter_network_namespace, limit_capabilities

_BRANCH_NAMESPACES = (
    syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
)
_NAMESPACE_FILES = ("user", "pid", "mnt", "ipc", "net")
_STAGING = "/run"  # empty in the sandbox: filesystems are filled here before they are moved


class SessionInit:
    """The orders of the server and how they are carried out.

    `fork_session` forks the session. It receives this object, the control stream and the two output
    pipes, and the order.
    """

    def __init__(
        self,
        link: socket.socket,
        spec: dict[str, Any],
        fork_session: Callable[[SessionInit, list[int], StartSession], None],
    ) -> None:
        self._socket, self._spec, self._fork_session = link, spec, fork_session
        self._wakeup_fds = (-1, -1)

    def serve(self) -> NoReturn:
        """Carry out orders until the server closes the socket."""
        reader, writer = self._wakeup_fds = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(writer)
        poll = select.poll()
        for descriptor in (self._socket.fileno(), reader):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == reader:
                    with contextlib.suppress(BlockingIOError):
                        os.read(reader, 512)
                    self._reap()
                else:
                    self._handle_order()

    def send_hello(self, namespaces: Iterable[int] = ()) -> None:
        """Report that this process is ready."""
        self._send(Hello(), [*namespaces])

    def release(self) -> None:
        """In a fork that becomes a session: close what belongs to the first process."""
        signal.set_wakeup_fd(-1)
        self._socket.close()
        for descriptor in self._wakeup_fds:
            os.close(descriptor)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._send(ProcessExit(pid, status, usage.ru_utime + usage.ru_stime))

    def _send(self, message: InitReport, descriptors: Iterable[int] = ()) -> None:
        try:
            socket.send_fds(self._socket, [encode_packet(message)], [*descriptors])
        except OSError:
            self._exit()

    def _exit(self) -> NoReturn:
        if not self._spec["namespaces"]:
            while process_tree.reap_all():
                process_tree.kill_descendants(os.getpid())
                time.sleep(0.001)
        os._exit(0)

    def _handle_order(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(
            self._socket, MAX_PACKET, 1 + MAX_MOUNTS, socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            self._exit()
        try:
            match order := decode_packet(data, *INIT_ORDERS):
                case StartSession():
                    self._fork_session(self, descriptors, order)
                case MountFolders():
                    attach_mounts([*order.targets], descriptors)
                case ForkBranchInit():
                    self._fork_branch_init([*order.targets], descriptors)
        except Exception as error:
            self._send(OrderResult(f"{type(error).__name__}: {error}"))
        else:
            self._send(OrderResult())
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _fork_branch_init(self, targets: list[str], descriptors: list[int]) -> None:
        """Fork the first process of a branch, in new namespaces that the session may enter."""
        between = os.fork()
        if between != 0:
            return
        link = socket.socket(fileno=os.dup(descriptors[0]))
        try:
            self._socket.close()
            signal.set_wakeup_fd(-1)
            self._replace_mounts(targets)
            _unshare_for_branch()
            # Only now: mounts made before the new user namespace could not be unmounted inside.
            attach_mounts(targets, descriptors[1:])
            enter_network_namespace(self._spec, "session")
            if os.fork() != 0:
                os._exit(0)
            mount_proc()
            syscalls.mount_devpts()
            limit_capabilities()
            namespaces = [
                os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
                for name in _NAMESPACE_FILES
            ]
            self._socket = link
            self.send_hello(namespaces)
            for descriptor in (*namespaces, *descriptors):
                os.close(descriptor)
        except BaseException as error:
            self._socket = link
            self._send(OrderResult(f"{type(error).__name__}: {error}"))
            os._exit(1)
        self.serve()

    def _replace_mounts(self, targets: list[str]) -> None:
        """Unmount the session's folders, and copy the content of its temporary filesystems."""
        syscalls.unshare(syscalls.CLONE_NEWNS)
        for target in reversed(targets):  # one may lie below another
            # Detach it with everything mounted on it: those mounts end with the session's folder.
            syscalls.unmount(target, syscalls.MNT_DETACH)
        for path, options in self._spec["tmpfs"]:
            syscalls.mount(
                "tmpfs", _STAGING, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options
            )
            _copy_folder(path, _STAGING, os.stat(path).st_dev)
            for target in self._spec["below_tmpfs"]:
                if target.startswith(f"{path}/"):
                    bind_mount(target, _STAGING + target[len(path) :])
            syscalls.mount(_STAGING, path, None, syscalls.MS_BIND | syscalls.MS_REC)
            syscalls.unmount(_STAGING, syscalls.MNT_DETACH)


def mount_proc() -> None:
    """Mount the `/proc` of this process namespace, where a user sees only its own processes."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", "/proc", "proc", flags, "hidepid=2")


def _unshare_for_branch() -> None:
    """Enter new namespaces, owned by a new user namespace so that the session may enter them."""
    user, group = os.geteuid(), os.getegid()
    # The files written below belong to root in a process that is not dumpable.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    try:
        syscalls.unshare(_BRANCH_NAMESPACES)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OSError(
                "this kernel does not nest branches of branches any deeper; fork an earlier session"
            ) from error
        raise
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)


def _copy_folder(source: str, target: str, device: int) -> None:
    """Copy the files of `source` on filesystem `device`; skip files that vanish meanwhile.

    Not with `SafeFolder`: this process is in the sandbox, and sees only what the code may see.
    """
    for entry in os.scandir(source):
        copy = f"{target}/{entry.name}"
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), copy)
            elif status.st_dev == device and entry.is_dir():
                os.makedirs(copy, exist_ok=True)
                _copy_folder(entry.path, copy, device)
                shutil.copystat(entry.path, copy)
            elif status.st_dev == device and entry.is_file():
                shutil.copy2(entry.path, copy)
