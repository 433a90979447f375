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
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from ...handshake import MAX_MOUNTS, MAX_PACKET
from ...linux import process_tree, syscalls
from ...messages import (
    INIT_ORDERS,
    ContinueAll,
    CopyTemporaryFolders,
    ForkBranchInits,
    Hello,
    InitOrder,
    InitReport,
    MountFolders,
    OrderResult,
    ProcessExit,
    StartBox,
    StartSession,
    StopAll,
)
from ...packets import decode_packet, encode_packet
from ...spec import ZygoteSpec
from ..box.confined_fork import Confined, Home
from ..box.service import BoxService
from ..box.users import (
    BoxUser,
    UserUnknown,
    become,
    find_user,
    open_user_namespace,
    unknown_user,
)
from ..command_root import IMAGE, enter_root, mount_root
from ..filesystem import attach_mounts, bind_mount, mount_temporary_folders
from ..init import enter_network_namespace, limit_capabilities
from ..poll_loop import FOREVER, PollLoop, ignoring_faults
from .fork_helper import close_all, helper_orders, reporting_errors

_BRANCH_NAMESPACES = syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC
_OF_THE_SANDBOX = (b"VIRTUAL_ENV", b"MPLBACKEND")  # variables for its Python
PROC_SYS = "/proc/sys"
_COPY = "a copy of a box has one user"
_NAMESPACE_FILES = ("user", "pid", "mnt", "ipc", "net")


class SessionInit:
    """The orders of the server and how they are carried out.

    `fork_session` forks the session. It receives this object, the control stream and the two output
    pipes, and the order. `confine` confines a fork like a session, which stays hidden, and may be
    another user. `limit` sets the limits of resources.
    """

    def __init__(
        self,
        link: socket.socket,
        spec: ZygoteSpec,
        fork_session: Callable[[SessionInit, list[int], StartSession], None],
        confine: Callable[[BoxUser | None], None],
        limit: Callable[[], None] = lambda: None,
    ) -> None:
        self._socket, self._spec, self._fork_session = link, spec, fork_session
        self._confine, self._limit = confine, limit
        self._users = -1  # the user namespace of commands as other users
        self._has_users = spec.user_landlock is not None
        self._wakeup_fds = (-1, -1)
        self._loop = PollLoop()
        self._box: BoxService | None = None
        self._has_root = False
        self._stopped_before = list[int]()
        self._folders_above: dict[str, int] = {}  # of a branch: temporary folders to be copied

    def serve(self) -> NoReturn:
        """Carry out orders until the server closes the socket."""
        reader, writer = self._wakeup_fds = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(writer)
        self._loop = PollLoop()
        self._loop.watch(self._socket.fileno(), self._handle_order)
        self._loop.watch(reader, self._on_wakeup)
        while True:
            box = self._box
            self._loop.run_once(FOREVER if box is None else box.next_deadline())
            if self._box is not None:
                with ignoring_faults():
                    self._box.on_timer(time.monotonic())

    def _on_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wakeup_fds[0], 512)
        self._reap()

    def send_hello(self, namespaces: Iterable[int] = ()) -> None:
        """Report that this process is ready."""
        self._send(Hello(), [*namespaces])

    def release(self) -> None:
        """In a fork that becomes a session: close what belongs to the first process."""
        signal.set_wakeup_fd(-1)
        self._socket.close()
        for descriptor in self._wakeup_fds:
            os.close(descriptor)
        self._close_box()

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._box is None or not self._box.on_exit(pid, status, usage):
                self._send(ProcessExit(pid, status, usage.ru_utime + usage.ru_stime))

    def _send(self, message: InitReport, descriptors: Iterable[int] = ()) -> None:
        try:
            socket.send_fds(self._socket, [encode_packet(message)], [*descriptors])
        except OSError:
            self._exit()

    def _exit(self) -> NoReturn:
        if not self._spec.namespaces:
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
            self._carry_out(decode_packet(data, *INIT_ORDERS), descriptors)
        except Exception as error:
            self._send(OrderResult(f"{type(error).__name__}: {error}"))
        else:
            self._send(OrderResult())
        finally:
            close_all(descriptors)

    def _carry_out(self, order: InitOrder, descriptors: list[int]) -> None:
        match order:
            case StartSession():
                self._fork_session(self, descriptors, order)
            case MountFolders():
                attach_mounts(order.targets, descriptors)
                self._mount_root(order.targets)
            case ForkBranchInits():
                self._fork_branch_inits(order, *descriptors)
            case CopyTemporaryFolders():
                self._copy_temporary_folders()
            case StartBox():
                self._start_box(socket.socket(fileno=os.dup(descriptors[0])))
            case StopAll():
                self._stopped_before = process_tree.stop_namespace()
            case ContinueAll():
                process_tree.continue_namespace(self._stopped_before)

    def _mount_root(self, targets: Sequence[str]) -> None:
        """Mount the root of commands, if the folders on `targets` are one."""
        self._has_root = IMAGE in targets
        if self._has_root:
            mount_root(self._spec, has_users=self._has_users)

    def _confine_in_root(self, user: str) -> Confined:
        """Become `user`, "" for that of the box. Confine this process, also if it is refused."""
        if self._has_root:
            enter_root()
        found, refusal, variables = None, "", dict[bytes, bytes]()
        if user:
            with contextlib.suppress(OSError):
                os.chdir(self._spec.cwd)  # where it may not be able to go
            try:
                found = find_user(user)
                variables = found.variables | self._paths_of(found)
                become(found, self._users)
            except UserUnknown:
                found, refusal = None, str(unknown_user(user))
        self._confine(found)
        return Confined(refusal, variables)

    def _paths_of(self, user: BoxUser) -> dict[bytes, bytes]:
        """Return where `user` looks for programs: others not where the user of the box writes."""
        if user.number != os.geteuid():
            return {b"PATH": os.fsencode(self._spec.user_path)}
        names = (b"PATH",) if self._has_root else (b"PATH", b"VIRTUAL_ENV")
        return {name: os.environb[name] for name in names if name in os.environb}

    def _start_box(self, stream: socket.socket) -> None:
        self._close_box()
        environment = dict(os.environb)
        if self._has_root:
            for name in _OF_THE_SANDBOX:
                environment.pop(name, None)
        if self._has_users:
            self._users = open_user_namespace(self._limit)
        home = Home(
            self._spec.cwd,
            environment,
            self._confine_in_root,
            has_users=self._has_users,
            one_user=self._spec.one_user if self._spec.user_landlock is None else _COPY,
            temporary=tuple(path for path, _ in self._spec.tmpfs),
        )
        self._box = BoxService(self._loop, stream, home, self._close_box)

    def _close_box(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            box.close()
        if self._users >= 0:
            os.close(self._users)
            self._users = -1

    def _fork_branch_inits(self, order: ForkBranchInits, link_fd: int) -> None:
        """Fork a helper, which forks a first process for each order that it receives.

        Each of these is in new namespaces, which the session may enter: its user owns the user
        namespace that they share.
        """
        if os.fork() != 0:
            return
        self.release()
        with socket.socket(fileno=link_fd) as link, reporting_errors(link):
            # A new /proc must not show more than this one does.
            protected = (PROC_SYS,) if self._has_users else ()
            _unmount_folders((*protected, *order.targets))
            _enter_user_namespace()
            for following, descriptors in helper_orders(link):
                if syscalls.fork_into(_BRANCH_NAMESPACES) == 0:
                    link.close()
                    self._become_branch_init(following.targets, descriptors, order.pid)
        os._exit(0)

    def _become_branch_init(
        self, targets: Sequence[str], descriptors: list[int], session_pid: int
    ) -> NoReturn:
        self._socket, self._has_users = socket.socket(fileno=descriptors[0]), False
        try:
            self._renew_temporary_folders()
            attach_mounts(targets, descriptors[1:])
            enter_network_namespace(self._spec, "session")
            mount_proc()
            syscalls.mount_devpts()
            self._mount_root(targets)
            _skip_process_ids(session_pid)
            limit_capabilities()
            namespaces = [
                os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
                for name in _NAMESPACE_FILES
            ]
            self.send_hello(namespaces)
            close_all([*namespaces, *descriptors[1:]])
        except BaseException as error:
            self._send(OrderResult(f"{type(error).__name__}: {error}"))
            os._exit(1)
        self.serve()

    def _renew_temporary_folders(self) -> None:
        """Mount temporary folders on those of the session above, which stay open."""
        paths, below = [path for path, _ in self._spec.tmpfs], self._spec.below_tmpfs
        opened = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (*paths, *below)}
        mount_temporary_folders(self._spec)
        for path in below:
            bind_mount(f"/proc/self/fd/{opened[path]}", path)
            os.close(opened.pop(path))
        self._folders_above = opened

    def _copy_temporary_folders(self) -> None:
        for path, descriptor in self._folders_above.items():
            source = f"/proc/self/fd/{descriptor}"
            _copy_folder(f"{source}/", path, os.stat(source).st_dev)
        close_all(self._folders_above.values())
        self._folders_above = {}


def _skip_process_ids(last: int) -> None:
    """Let the first process that is forked here have a higher ID than `last`, if possible.

    Libraries recognise by its ID that a process is a fork, whose threads do not exist.
    """
    try:
        with open("/proc/sys/kernel/ns_last_pid", "w") as file:
            file.write(str(last))
    except OSError:  # a kernel without it, where a branch can have the ID of a branch above it
        with contextlib.suppress(OSError):
            os.posix_spawn("/", ["/"], {})  # uses one ID up


def _unmount_folders(targets: Sequence[str]) -> None:
    syscalls.unshare(syscalls.CLONE_NEWNS)
    for target in reversed(targets):  # one may lie below another
        # Detach it with everything mounted on it: those mounts end with the session's folder.
        syscalls.unmount(target, syscalls.MNT_DETACH)


def protect_settings() -> None:
    """Make /proc/sys read-only: root would own what is there of the session's IPC namespace."""
    kept = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount(PROC_SYS, PROC_SYS, None, syscalls.MS_BIND)
    flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | kept
    syscalls.mount(PROC_SYS, PROC_SYS, None, flags)


def mount_proc() -> None:
    """Mount the `/proc` of this process namespace, where a user sees only its own processes."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", "/proc", "proc", flags, "hidepid=2")


def _enter_user_namespace() -> None:
    """Enter a new user namespace, without other users than that of this process."""
    user, group = os.geteuid(), os.getegid()
    # The files written below belong to root in a process that is not dumpable.
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    try:
        syscalls.unshare(syscalls.CLONE_NEWUSER)
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
