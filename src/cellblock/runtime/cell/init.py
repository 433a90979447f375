"""The first process of a cell: it makes the cell fresh, forks a block's main process, ends what is left of it, and again.

It speaks to the cell server in packets over one socket. ``H``: here I am (the kernel adds the process id). The server sends
``G`` with the writing ends of two pipes whenever a fresh main process is wanted; that says ``R`` once it is shut in, and
waits there for its job, or for ``P``: there is time to rehearse. When it has ended, and everything that it left behind, a
`Report` goes out; see also `farewell`. ``E`` and a text say what failed. The main process closes its copy of the socket
before it runs anything that is not ours.

Nothing but kernel objects could carry over from one block to the next: its processes are dead, memory and descriptors
were theirs, and what the namespaces hold is made new by `Ground`.
"""

from __future__ import annotations

import contextlib
import importlib
import marshal
import os
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from ..linux import process_tree, syscalls
from . import script, warmup
from .confinement import Confinement, outlive_waiting
from .early_exit import Farewell, say

# Without the enums of `signal`, which every block's process would have to copy.
_set_signal: Callable[[int, Any], Any] = importlib.import_module("_signal").signal
# Without what Python's `socket` adds to it.
_detach: Callable[[socket.socket], int] = importlib.import_module("_socket").socket.detach

# What the zygote is asked for: a first process for blocks, or for a session; another zygote, for a guest.
CELL, SESSION, ZYGOTE = b"c", b"s", b"z"
HELLO, GO, READY, REHEARSE, ERROR = b"H", b"G", b"R", b"P", b"E"
_TRACKING = (
    0.5  # seconds that it may take; it begins when the program has ended, and takes milliseconds
)
_SIGINT, _SIGTERM, _SIG_DFL = int(signal.SIGINT), int(signal.SIGTERM), int(signal.SIG_DFL)
REPORT = struct.Struct("<idq")
PACKET = 1 << 16  # longest packet
_ROOM = socket.CMSG_SPACE(16 * 4)  # for the descriptors that come with a packet
MOST_MOUNTS = (
    250  # that are handed in at one time: descriptors that one message carries, see unix(7)
)
_CLOCK_OF_FILES = 5  # CLOCK_REALTIME_COARSE, see clock_gettime(2)
_TICKS = 20_000_000  # nanoseconds: more than that clock stands still

_new_messages = syscalls.Call("unshare", "unshare", syscalls.CLONE_NEWIPC)

_kept: list[
    object
] = []  # what a block's process has of ours: to let go of it would only touch, and so copy, its memory


class Report(NamedTuple):
    """How a block ended: wait status of its main process, CPU seconds and peak bytes of all of it."""

    status: int
    cpu_seconds: float
    peak_bytes: int


def enter(link: socket.socket, spec: dict[str, Any], confinement: Confinement) -> dict[str, Any]:
    """Be the first process of a cell. Returns in a block's main process alone, with its job."""
    try:
        kill = _prepare(spec)
        ground = Ground(spec)
        farewell = Farewell(kill, link.sendall, REPORT)
        if spec.get("farewell"):
            farewell.listen()
        _kept.extend((confinement, ground, farewell))
        link.sendall(HELLO)
        while True:
            targets, descriptors, mounts = _await_go(link)
            if ground.renew() or targets:
                mount_all(targets, mounts)
                for mount in mounts:
                    os.close(mount)
                confinement.prepare()
            farewell.begin()
            main = os.fork()
            if main == 0:
                ground.leave()
                farewell.leave()
                return _become_main(link, descriptors, spec, confinement)
            for descriptor in descriptors:
                os.close(descriptor)
            farewell.expect(main)
            report = _supervise(main, kill, at_once=bool(spec["namespaces"]))
            if not farewell.is_over:
                link.sendall(report)
    except BaseException as error:
        _fail(link, error)


def _prepare(spec: dict[str, Any]) -> Callable[[], None]:
    """Set up what stays for all blocks; give what kills all of a block."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if spec["own_processes"]:
        kill = process_tree.kill_namespace
    else:
        kill = _kill_own
        syscalls.adopt_orphans()
    if spec["namespaces"]:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        own_network(spec, "session")
        syscalls.mount(
            "proc", "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
        )
    else:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGTERM)

    def end_block(_number: int, _frame: object) -> None:
        kill()

    # The server's way to end a block; it comes from outside a process namespace, or from a block that wants to die.
    signal.signal(signal.SIGTERM, end_block)
    _kept.extend((spec, kill, end_block))
    return kill


def own_network(spec: dict[str, Any], whose: str) -> None:
    """Enter a new network where each of `whose`, "session" or "guest", is to have one; the cells of a guest share it."""
    if spec.get("own_network") == whose:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        syscalls.bring_up_loopback()


def keep_few_capabilities() -> None:
    """Keep those alone that the making of cells needs."""
    for capability in range(syscalls.CAP_LAST + 1):
        if capability not in syscalls.CELL_CAPABILITIES:
            syscalls.drop_from_bounding_set(capability)
    mask = sum(1 << capability for capability in syscalls.CELL_CAPABILITIES)
    syscalls.capability_call(mask, mask, mask)()


def _kill_own() -> None:
    process_tree.kill_below(os.getpid())


class _Untouched:
    """How a fresh filesystem looks: what `_status` gives of its folders, the names in them, and when the last was changed."""

    def __init__(self, folders: list[str]) -> None:
        self.folders = [(folder, _status(folder)) for folder in folders]
        self.names = _names(self.folders)
        self.changed = max(ctime for _, (_, _, ctime, _, _) in self.folders)
        self.settled = False  # whether the times of change tell of any change that is still to come


class Ground:
    """What a block stands on and may change: its temporary filesystems, terminals, System V and POSIX message objects."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._namespaces = bool(spec["namespaces"])
        self._options = {path: options for path, options in spec["tmpfs"]}
        # A handle still reaches what the temporary filesystems are about to hide.
        self._below = {path: os.open(path, os.O_PATH) for path in spec["below_tmpfs"]}
        # Where a target lies deeper down, the folders on the way to it can be changed without a trace at the top.
        self._watched = {path: [path, *sorted(_way(path, self._below))] for path in self._options}
        if self._namespaces:
            self._watched[syscalls.TERMINALS] = [
                syscalls.TERMINALS,
                f"{syscalls.TERMINALS}/ptmx",
            ]  # which is the cell's own
        self._untouched: dict[str, _Untouched] = {}
        self._first = True

    def renew(self) -> bool:
        """Make all of it as if no block had been here; tell whether a filesystem is another one now."""
        changed, self._first = self._first, False
        if self._namespaces:
            _new_messages()
        for path in self._watched:
            if not self._is_untouched(path):
                self._mount(path)
                changed = True
        return changed

    def _is_untouched(self, path: str) -> bool:
        before = self._untouched.get(path)
        if before is None:
            return False
        for folder, status in before.folders:
            if _status(folder) != status:
                return False
        if not before.settled:
            if _names(before.folders) != before.names:
                return False
            # From here on a change moves the time, however coarse the clock is: what it tells now is later already.
            before.settled = time.clock_gettime_ns(_CLOCK_OF_FILES) > before.changed + _TICKS
        return True

    def _mount(self, path: str) -> None:
        """Mount what is fresh on `path`, in the place of what a block has touched."""
        if path in self._untouched:
            syscalls.unmount(path, syscalls.MNT_DETACH)
        if path == syscalls.TERMINALS:
            syscalls.mount_terminals()
        else:
            syscalls.mount(
                "tmpfs", path, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, self._options[path]
            )
        for target, handle in self._below.items():
            if target.startswith(f"{path}/"):
                show(f"/proc/self/fd/{handle}", target)
        self._untouched[path] = _Untouched(self._watched[path])

    def leave(self) -> None:
        """Let go of the handles: where user code runs, there are none."""
        for handle in self._below.values():
            os.close(handle)


def _status(path: str) -> tuple[int, int, int, int, int]:
    # Whatever is made, removed or renamed in a folder, and every change of its own rights, moves the time of change.
    status = os.stat(path)
    return status.st_dev, status.st_mode, status.st_ctime_ns, status.st_mtime_ns, status.st_size


def _names(folders: list[tuple[str, Any]]) -> list[list[str]]:
    return [os.listdir(folder) for folder, _ in folders if os.path.isdir(folder)]


def _way(folder: str, targets: Iterable[str]) -> set[str]:
    """Give the folders between `folder` and what lies below it."""
    found = set[str]()
    for target in targets:
        parent = os.path.dirname(target)
        while parent.startswith(f"{folder}/"):
            found.add(parent)
            parent = os.path.dirname(parent)
    return found


def show(source: str, target: str) -> None:
    """Mount the folder or file `source` on `target` as well, which is made."""
    make_target(target, is_folder=os.path.isdir(source))
    syscalls.mount(source, target, None, syscalls.MS_BIND | syscalls.MS_REC)


def make_target(target: str, *, is_folder: bool) -> None:
    """Make what a folder or a file is to be mounted on, where it is not there."""
    if is_folder:
        os.makedirs(target, exist_ok=True)
    elif not os.path.lexists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def go(targets: list[str]) -> bytes:
    """Make the packet that asks for a fresh main process; mounts for `targets` come after the pipes."""
    return GO + "\0".join(targets).encode()


def _await_go(link: socket.socket) -> tuple[list[str], Sequence[int], Sequence[int]]:
    while True:
        data, ancillary, _, _ = link.recvmsg(PACKET, _ROOM)
        if not data:
            os._exit(0)  # the server lets go of this cell
        if data.startswith(GO):
            ((_, _, descriptors),) = ancillary
            numbers = struct.unpack(f"{len(descriptors) // 4}i", descriptors)
            return data[1:].decode().split("\0") if data[1:] else [], numbers[:2], numbers[2:]
        # Otherwise: the job of a main process that was killed before it took it.


def mount_all(targets: Iterable[str], mounts: Iterable[int]) -> None:
    """Mount what was handed in."""
    for target, mount in zip(targets, mounts, strict=True):
        make_target(target, is_folder=stat.S_ISDIR(os.fstat(mount).st_mode))
        syscalls.attach(mount, target)


def _fail(link: socket.socket, error: BaseException) -> NoReturn:
    with contextlib.suppress(OSError):  # without a server there is nobody to tell
        link.sendall(ERROR + f"{type(error).__name__}: {error}".encode())
    os._exit(1)


def _become_main(
    link: socket.socket, descriptors: Sequence[int], spec: dict[str, Any], confinement: Confinement
) -> dict[str, Any]:
    # Plain calls on plain numbers: all that is touched here has to be copied for every block.
    try:
        _set_signal(_SIGTERM, _SIG_DFL)
        _set_signal(_SIGINT, signal.default_int_handler)
        os.setsid()
        # One of its own: what a block does to a descriptor that it shares, a lock for one, would outlive it.
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        for target, source in enumerate(descriptors, 1):
            os.dup2(source, target)
            os.close(source)
        os.chdir(spec["cwd"])
        confinement.apply()
        if spec["scripts"]:
            script.prepare()
        os.write(link.fileno(), READY)
        job = os.read(link.fileno(), PACKET)
        if job == REHEARSE:
            warmup.rehearse()
            job = os.read(link.fileno(), PACKET)
        if not job:
            os._exit(0)  # the server went away before there was anything to do
        if confinement.sacrifice:
            outlive_waiting()
        os.close(_detach(link))
        return marshal.loads(job)
    except BaseException as error:
        _fail(link, error)


def look_up() -> None:
    """In the zygote: look for all that a block's process will look for on its way, where that would be noted."""
    warmup.look_up(
        os, _become_main, Ground.leave, Farewell.leave, Confinement.apply, say, script.finish
    )
    warmup.look_up(socket.socket, _become_main)
    for kind, function in (
        (Ground, Ground.leave),
        (Farewell, Farewell.leave),
        (Confinement, Confinement.apply),
        (syscalls.Call, syscalls.Call.__call__),
    ):
        warmup.look_up(kind, function)


def encode_job(job: dict[str, Any]) -> bytes:
    """Make the packet that hands `job` to a waiting main process; from outside to inside, never the other way."""
    return marshal.dumps(job)


def _supervise(main: int, kill: Callable[[], None], *, at_once: bool) -> bytes:
    """Reap until the main process has ended, end whatever it left behind, and give the report.

    `at_once`: one `kill` ends all. Else what is being forked meanwhile may slip away, and it is called until nothing is left.
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
                _await_trackers()
            kill()
        if pid == 0:
            time.sleep(0.001)
    return REPORT.pack(status or 0, cpu, peak)


def _await_trackers() -> None:
    """Let the process that Python starts beside shared memory remove what its program has left, which is the machine's."""
    deadline = time.monotonic() + _TRACKING
    while any(map(_is_tracker, process_tree.children(os.getpid()))) and time.monotonic() < deadline:
        time.sleep(0.001)


def _is_tracker(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"multiprocessing.resource_tracker" in file.read()
    except OSError:
        return False


if sys.platform != "linux":
    raise ImportError("Cells need Linux.")
