"""What a fork of a session cannot copy, and what it has to renew.

A fork copies the memory and the calling thread. Other threads are missing in it, and the locks they
held stay locked. The kernel objects behind descriptors are shared with the parent. So everything
that would break is named and refused, open files get their own positions, and the random numbers
of a branch differ from those of its session.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import io
import os
import signal
import socket
import stat
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from ...linux import syscalls
from .. import interpreter
from . import shared_memory
from .native_threads import describe_obstacles, predict_obstacles

_MAX_CHILDREN = 10  # that are named
_MAX_THREADS = 8  # native ones that are named
_BASE_LINKS = 2  # of /proc/self/task, which has one more for each thread
# `_signal` without the enums of `signal`, whose use would write to memory in each fork.
_signals: Any = importlib.import_module("_signal")
_set_blocked: Callable[[int, Iterable[int]], set[int]] = _signals.pthread_sigmask
_SIGKILL = int(signal.SIGKILL)
_SIG_SETMASK = int(signal.SIG_SETMASK)
_ALL_SIGNALS = {int(number) for number in signal.valid_signals()}
_KEPT_FLAGS = os.O_APPEND | os.O_NONBLOCK | os.O_ACCMODE


def is_single_threaded() -> bool:
    """Return True if this process has exactly one thread, native threads included."""
    return os.stat("/proc/self/task").st_nlink == _BASE_LINKS + 1


def python_threads(
    except_for: Callable[[threading.Thread], bool] = lambda _thread: False,
) -> list[str]:
    """Describe the Python threads other than the calling one, `except_for` some."""
    own = threading.get_ident()
    return _count_repeated(
        f"the Python thread {thread.name!r}"
        for thread in threading.enumerate()
        if thread.ident != own and not except_for(thread)
    )


def _count_repeated(descriptions: Iterable[str]) -> list[str]:
    return [
        f"{text} ({count} times)" if count > 1 else text
        for text, count in Counter(descriptions).items()
    ]


def native_threads() -> list[str]:
    """Describe the threads that are not Python's and that a fork needs.

    Call it after a fork: some libraries end their threads before a fork and start them again.
    """
    # The kernel's count spares a look at each thread.
    if os.stat("/proc/self/task").st_nlink - _BASE_LINKS == threading.active_count():
        return []
    return _shorten(describe_obstacles())


def predict_missing_threads(except_for: Callable[[threading.Thread], bool]) -> list[str]:
    """Describe the threads that a copy is likely to lack, `except_for` some of Python's."""
    return python_threads(except_for) + _shorten(predict_obstacles())


def _shorten(descriptions: Iterable[str]) -> list[str]:
    found = _count_repeated(descriptions)
    more = len(found) - _MAX_THREADS
    return [*found[:_MAX_THREADS], f"{more} other native threads"] if more > 1 else found


def threads_of_forks() -> list[str]:
    """Describe the threads that libraries start again in each fork of this process.

    Such a fork cannot enter another cell: for that, a process must have one thread.
    """
    if (pid := syscalls.fork_without_hooks()) == 0:
        os._exit(not is_single_threaded())
    _, status = os.waitpid(pid, 0)
    return ["threads that a library starts again in each copy"] if status else []


def find_obstacles(checkpoints: Iterable[int]) -> list[str]:
    """Describe what prevents an exact copy of this process by a fork.

    `checkpoints` are the process IDs of children that do not matter. Native threads are found
    after the fork only, see `native_threads`.
    """
    reap_killed_children(set(checkpoints))
    found = python_threads()
    children = [pid for pid in list_children() if pid not in set(checkpoints)]
    found += [f"the child process {pid} ({_process_name(pid)})" for pid in children[:_MAX_CHILDREN]]
    if len(children) > _MAX_CHILDREN:
        found.append(f"{len(children) - _MAX_CHILDREN} other child processes")
    found += _connections()
    found += shared_memory.describe_shared_memory()
    return _count_repeated(found)


def reap_killed_children(hidden: Collection[int]) -> None:
    """Reap the children that SIGKILL has ended, as the end of a block does with those it left.

    `subprocess.Popen` objects keep the exit status. Children in `hidden` are ignored.
    """
    killed = [pid for pid in list_children() if pid not in hidden and _was_killed(pid)]
    if not killed:
        return
    # Absent unless user code has imported it. Any attribute may have been replaced by user code.
    popen = getattr(sys.modules.get("subprocess"), "Popen", None)
    for item in gc.get_objects():
        if type(item) is popen:
            with contextlib.suppress(Exception):
                item.poll()
    for pid in killed:
        with contextlib.suppress(ChildProcessError):  # `poll` has reaped it
            os.waitpid(pid, os.WNOHANG)


def _was_killed(pid: int) -> bool:
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return ended is not None and ended.si_status == _SIGKILL and ended.si_code == os.CLD_KILLED


def list_children() -> list[int]:
    """Return the process IDs of this process's children, zombies included."""
    pids: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as file:
            pids += [int(word) for word in file.read().split()]
    return pids


def _process_name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return "ended"


def _list_descriptors(excluded: Iterable[int] = ()) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            if descriptor not in excluded:
                found.append((descriptor, os.readlink(f"/proc/self/fd/{descriptor}")))
        except OSError:
            continue  # the descriptor of this very listing
    return found


def _connections() -> list[str]:
    found: list[str] = []
    for descriptor, target in _list_descriptors():
        if target.startswith("/dev/nvidia"):
            found.append(f"an open GPU context ({target})")
        elif target.startswith(syscalls.DEVPTS):
            found.append(f"an open terminal ({target})")
        elif target.startswith("socket:"):
            with socket.socket(fileno=os.dup(descriptor)) as opened:
                if opened.family in (socket.AF_INET, socket.AF_INET6):
                    found.append(f"a network socket ({_socket_address(opened)})")
    return found


def _socket_address(opened: socket.socket) -> str:
    try:
        return "to {}:{}".format(*opened.getpeername()[:2])
    except OSError:
        return "at {}:{}".format(*opened.getsockname()[:2])


class _OpenFile(NamedTuple):
    descriptor: int
    path: str
    flags: int
    position: int


class ForkState:
    """The state that a plain fork does not preserve.

    That is the positions in open files, the values of semaphores, and the signal mask. Create it
    before the fork. Call `release_pipes` in a fork that waits, and `reopen_files`,
    `renew_semaphores` and `restore_signals_in_fork` in the fork once it becomes a session.
    """

    def __init__(self, *, flush: bool, excluded: set[int]) -> None:
        """Record the state.

        `flush` first writes out the buffers of open files, which the parent and the fork would
        otherwise both write. `excluded` are descriptors that are not user code's.
        """
        # Since Linux 6.2 this size is the number of descriptors. Often there are only ours.
        none = os.stat("/proc/self/fd").st_size == len(excluded)
        self._files = [] if none else _list_open_files(excluded)
        if flush and any(file.flags & os.O_ACCMODE != os.O_RDONLY for file in self._files):
            _flush_files()
            self._files = _list_open_files(excluded)
        self._pipes = [] if none else _list_pipes_to_others(excluded)
        # Only this module makes semaphores. Without it, a look at all mappings is not needed.
        has_semaphores = "_multiprocessing" in sys.modules
        self._semaphores = shared_memory.read_semaphores() if has_semaphores else {}
        # In a rollback, which does not flush, the files are those of the session.
        self._mapped_files = shared_memory.list_mapped_files() if flush else []
        self._blocked: set[int] | None = None  # the mask to restore, while signals are blocked

    def release_pipes(self) -> None:
        """In the fork: let go of the pipes on which other processes wait for the end of the input.

        They are broken pipes in the fork. The fork itself would not close them in time.
        """
        if not self._pipes:
            return
        reader, writer = os.pipe()
        os.close(reader)
        for descriptor in self._pipes:
            os.dup2(writer, descriptor, inheritable=False)
        os.close(writer)

    def block_signals(self, *, except_for: Collection[int] = ()) -> None:
        """Block all signals that can be blocked, except for some."""
        blocked = _set_blocked(_SIG_SETMASK, _ALL_SIGNALS.difference(except_for))
        if self._blocked is None:
            self._blocked = blocked

    def restore_signals(self) -> None:
        """Restore the signal mask and receive the signals that are pending."""
        if self._blocked is not None:
            _set_blocked(_SIG_SETMASK, self._blocked)
            self._blocked = None

    def restore_signals_in_fork(self) -> None:
        """In the fork: drop the parent's pending signals and restore the mask."""
        while waiting := signal.sigpending():
            signal.sigtimedwait(waiting, 0)
        self.restore_signals()

    def renew_semaphores(self) -> None:
        """In the fork: create its own semaphores, with the values from before the fork."""
        shared_memory.renew_semaphores(self._semaphores)

    def reopen_files(self, *, moved_folder: tuple[str, str] = ("", "")) -> None:
        """In the fork: give each open file its own position.

        `moved_folder`: files below the first folder are below the second one in the fork.
        """
        interpreter.renew_thread_id()
        for file in self._files:
            _reopen_file(file, *moved_folder)
        shared_memory.renew_mapped_files(
            self._mapped_files, lambda path: _moved_path(path, *moved_folder)
        )


def _list_pipes_to_others(excluded: set[int]) -> list[int]:
    """Return the descriptors of pipes that this process writes to, and does not read from."""
    written, read = dict[int, str](), set[str]()
    for descriptor, target in _list_descriptors(excluded):
        if target.startswith("pipe:"):
            with contextlib.suppress(OSError):  # closed in the meantime
                if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                    read.add(target)
                else:
                    written[descriptor] = target
    return [descriptor for descriptor, target in written.items() if target not in read]


def _list_open_files(excluded: set[int]) -> list[_OpenFile]:
    found = map(_describe_open_file, _list_descriptors(excluded))
    return [file for file in found if file is not None]


def _describe_open_file(entry: tuple[int, str]) -> _OpenFile | None:
    descriptor, path = entry
    try:
        if not path.startswith("/") or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return _OpenFile(
            descriptor,
            path,
            fcntl.fcntl(descriptor, fcntl.F_GETFL) & _KEPT_FLAGS,
            os.lseek(descriptor, 0, os.SEEK_CUR),
        )
    except OSError:
        return None


def _moved_path(path: str, old_folder: str, new_folder: str) -> str:
    is_below = path.startswith(f"{old_folder}/")
    return new_folder + path[len(old_folder) :] if is_below else path


def _reopen_file(file: _OpenFile, old_folder: str, new_folder: str) -> None:
    """Replace the descriptor's open file, which the fork shares with its parent, by a new one."""
    try:
        # "(deleted)": to restore the work folder replaces its files, so the path is a new file.
        if os.readlink(f"/proc/self/fd/{file.descriptor}").removesuffix(" (deleted)") != file.path:
            return  # the descriptor is another file now, which stays shared
        path = _moved_path(file.path, old_folder, new_folder)
        opened = os.open(path, file.flags | os.O_CLOEXEC)
    except OSError:
        return  # closed in the meantime, for example by the garbage collector
    inheritable = os.get_inheritable(file.descriptor)
    os.dup2(opened, file.descriptor, inheritable=inheritable)
    os.close(opened)
    os.lseek(file.descriptor, file.position, os.SEEK_SET)


def _flush_files() -> None:
    for item in gc.get_objects():
        if (
            isinstance(item, io.BufferedWriter | io.BufferedRandom | io.TextIOWrapper)
            and not item.closed
        ):
            try:
                item.flush()
            except (OSError, ValueError):
                continue  # read-only or broken: it has nothing that the fork could lose


def reseed() -> None:
    """In a branch: seed the random numbers of random, numpy and torch again, where loaded."""
    seed = int.from_bytes(os.urandom(8), "little")
    if "random" in sys.modules:
        sys.modules["random"].seed()
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy.random.seed(seed & 0xFFFFFFFF)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed >> 1)
