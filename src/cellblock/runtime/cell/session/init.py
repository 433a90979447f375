"""The first process of a session's cell: it starts the session, reaps whatever ends, and makes cells for branches.

It speaks to the cell server in packets over one socket: JSON, with descriptors. To it: ``start`` with the session's control
stream and output pipes; ``mount`` with folders; ``nest`` with the socket of a new guard. From it: ``{"hello"}``, with four
namespaces when it is the guard of a branch; ``{"done"}`` or ``{"error"}`` to each order; ``{"died"}`` for each process that
it reaps.
It never runs user code, and ends when the server lets go of it, with everything in its process namespace; where it has none,
as in a container, with everything below it, which nothing leaves: what has lost its parent becomes its child.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import socket
import time
from typing import Any, NoReturn

from ...linux import process_tree, syscalls
from ..confinement import Confinement
from ..init import PACKET, Ground, keep_few_capabilities, mount_all, own_network, show

_FULL = (
    syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
)
_SPACES = ("user", "pid", "mnt", "ipc", "net")
_BETWEEN = (
    "/run"  # an empty folder of ours, where a filesystem can be filled before it takes its place
)


class Guard:
    """See above."""

    def __init__(self, link: socket.socket, spec: dict[str, Any], confinement: Confinement) -> None:
        self._link, self._spec, self._confinement = link, spec, confinement
        self._wakers = (-1, -1)

    def serve(self) -> NoReturn:
        """Do as told until the server lets go."""
        waker, wake = self._wakers = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake)
        poll = select.poll()
        for descriptor in (self._link.fileno(), waker):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == waker:
                    with contextlib.suppress(BlockingIOError):
                        os.read(waker, 512)
                    self._reap()
                else:
                    self._take()

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._say({"died": pid, "status": status, "cpu": usage.ru_utime + usage.ru_stime})

    def _say(self, news: dict[str, Any], descriptors: tuple[int, ...] | list[int] = ()) -> None:
        try:
            socket.send_fds(self._link, [json.dumps(news).encode()], descriptors)
        except OSError:
            self._leave()

    def _leave(self) -> NoReturn:
        if not self._spec["namespaces"]:
            while process_tree.reap_all():
                process_tree.kill_below(os.getpid())
                time.sleep(0.001)
        os._exit(0)

    def _take(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._link, PACKET, 16, socket.MSG_CMSG_CLOEXEC)
        if not data:
            self._leave()
        order = json.loads(data)
        try:
            match order["do"]:
                case "start":
                    self._start(descriptors, entered=order["enter"])
                case "mount":
                    mount_all(order["targets"], descriptors)
                case _:
                    self._nest(order["targets"], descriptors)
        except Exception as error:
            self._say({"error": f"{type(error).__name__}: {error}"})
        else:
            self._say({"done": order["do"]})
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _start(self, descriptors: list[int], *, entered: bool) -> None:
        """Fork the session: shut in as any cell, on a control stream and two pipes."""
        if os.fork() != 0:
            return
        try:
            self._become_session(descriptors, entered=entered)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)

    def _become_session(self, descriptors: list[int], *, entered: bool) -> NoReturn:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        self._link.close()
        for descriptor in self._wakers:
            os.close(descriptor)
        os.setsid()
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        control, *streams = descriptors
        for target, source in enumerate(streams, 1):
            os.dup2(source, target)
            os.close(source)
        self._confinement.apply()
        from .session import Session  # imported by the zygote already

        session = Session(zygote_shell(), control, self._spec["cwd"])
        if entered:
            session.enter()
        session.serve()

    def _nest(self, targets: list[str], descriptors: list[int]) -> None:
        """Fork the guard of a branch: it begins below this one, in namespaces that the session may step into."""
        between = os.fork()
        if between != 0:
            return
        link = socket.socket(fileno=os.dup(descriptors[0]))
        try:
            self._link.close()
            signal.set_wakeup_fd(-1)
            self._furnish(targets)
            _enter_namespaces()
            mount_all(
                targets, descriptors[1:]
            )  # only now: what came from outside the user namespace stays for good
            own_network(self._spec, "session")
            if os.fork() != 0:
                os._exit(0)
            syscalls.mount(
                "proc",
                "/proc",
                "proc",
                syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC,
                "hidepid=2",
            )
            syscalls.mount_terminals()
            keep_few_capabilities()
            spaces = [
                os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _SPACES
            ]
            self._link = link
            self._say({"hello": True}, spaces)
            for descriptor in (*spaces, *descriptors):
                os.close(descriptor)
        except BaseException as error:
            self._link = link
            self._say({"error": f"{type(error).__name__}: {error}"})
            os._exit(1)
        self.serve()

    def _furnish(self, targets: list[str]) -> None:
        """Take the session's folders away, and give the branch a copy of what lies in the temporary ones."""
        syscalls.unshare(syscalls.CLONE_NEWNS)
        for target in reversed(targets):  # one may lie below another
            # What is mounted on a folder of the session's goes with that folder, when the session stops.
            syscalls.unmount(target, syscalls.MNT_DETACH)
        for path, options in self._spec["tmpfs"]:
            syscalls.mount(
                "tmpfs", _BETWEEN, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options
            )
            _copy_folder(path, _BETWEEN, os.stat(path).st_dev)
            for target in self._spec["below_tmpfs"]:
                if target.startswith(f"{path}/"):
                    show(target, _BETWEEN + target[len(path) :])
            syscalls.mount(_BETWEEN, path, None, syscalls.MS_BIND | syscalls.MS_REC)
            syscalls.unmount(_BETWEEN, syscalls.MNT_DETACH)


def enter(link: socket.socket, spec: dict[str, Any], confinement: Confinement) -> NoReturn:
    """Be the first process of a session's cell, as the zygote's fork."""
    guard = Guard(link, spec, confinement)
    try:
        if spec["namespaces"]:
            syscalls.unshare(syscalls.CLONE_NEWNS)
            own_network(spec, "session")
            syscalls.mount(
                "proc",
                "/proc",
                "proc",
                syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC,
                "hidepid=2",
            )
        else:
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        ground = Ground(spec)
        ground.renew()
        ground.leave()  # a session stands on one and the same for all its blocks
        confinement.prepare()
        socket.send_fds(link, [json.dumps({"hello": True}).encode()], [])
    except BaseException as error:
        with contextlib.suppress(OSError):
            link.sendall(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    guard.serve()


_shells: list[Any] = []


def zygote_shell() -> Any:
    """Give the shell of this process, made on the first call: by the zygote, for all its sessions."""
    if not _shells:
        from .shell import Shell

        _shells.append(Shell())
    return _shells[0]


def _enter_namespaces() -> None:
    """Enter namespaces that belong to a user namespace of the branch's own, so that who comes from the session may enter."""
    user, group = os.geteuid(), os.getegid()
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # else the maps below would belong to root
    try:
        syscalls.unshare(_FULL)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OSError(
                "branches of branches are nested too deep for this kernel; fork an earlier one"
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
    """Copy what lies in `source` itself, and not what is mounted there; what vanishes meanwhile is left out."""
    for entry in os.scandir(source):
        made = f"{target}/{entry.name}"
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), made)
            elif status.st_dev == device and entry.is_dir():
                os.makedirs(made, exist_ok=True)
                _copy_folder(entry.path, made, device)
                shutil.copystat(entry.path, made)
            elif status.st_dev == device and entry.is_file():
                shutil.copy2(entry.path, made)
