"""What a fork of a live session cannot carry over, and what it has to be given of its own.

A fork copies memory and the calling thread, nothing else: other threads are gone in it, in the middle of whatever they held;
the kernel's objects behind descriptors are shared with the other side. So what would break is named and refused, open files
get positions of their own, and random numbers go on where the other side's do or, in a branch, elsewhere.
"""

from __future__ import annotations

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
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from ...linux import syscalls

_NATIVE = (
    "libgomp",
    "libomp",
    "libiomp5",
    "libtbb",
    "libarrow",
    "libtorch_cpu",
    "libcuda",
)  # known to start threads
_LINKS = 2  # of the folder of threads besides one for each: its own and its parent's
_PREPARED = (
    "jemalloc_bg_thd",
)  # pyarrow's allocator gets ready for every fork, and does without it in the child
# Without the enums of `signal`, which each copy would cost.
_signals: Any = importlib.import_module("_signal")
_set_blocked: Callable[[int, Iterable[int]], set[int]] = _signals.pthread_sigmask
_SET = int(signal.SIG_SETMASK)
_ALL_SIGNALS = {int(number) for number in signal.valid_signals()}
_SETTABLE = os.O_APPEND | os.O_NONBLOCK | os.O_ACCMODE


def is_alone() -> bool:
    """Tell whether this process has one thread and no more, of whatever kind: the kernel counts them."""
    return os.stat("/proc/self/task").st_nlink == _LINKS + 1


def python_threads() -> list[str]:
    """Name the Python threads besides the one that calls."""
    own = threading.get_ident()
    return [
        f"the Python thread {thread.name!r}"
        for thread in threading.enumerate()
        if thread.ident != own
    ]


def native_threads() -> list[str]:
    """Name the threads that are not Python's; to be asked after a fork, which ends those that libraries bring back."""
    if (
        os.stat("/proc/self/task").st_nlink - _LINKS == threading.active_count()
    ):  # told without a look at each
        return []
    extra = (
        sum(_thread_name(thread) not in _PREPARED for thread in os.listdir("/proc/self/task"))
        - threading.active_count()
    )
    if extra <= 0:
        return []
    with open("/proc/self/maps") as maps:
        text = maps.read()
    suspects = [name for name in _NATIVE if name in text]
    return [
        f"{extra} native thread{'s' if extra > 1 else ''}"
        + (f" (loaded: {', '.join(suspects)})" if suspects else "")
    ]


def _thread_name(thread: str) -> str:
    try:
        with open(f"/proc/self/task/{thread}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""  # it has ended


def obstacles(keepers: Iterable[int], tasks: Iterable[str]) -> list[str]:
    """Name all that keeps an exact copy of this process from being made by a fork, as far as it can be seen before one."""
    found = python_threads()
    found += [
        f"the child process {pid} ({_name(pid)})" for pid in children() if pid not in set(keepers)
    ]
    found += [f"the asyncio task {name!r}" for name in tasks]
    found += _connections()
    found += _shared_memory()
    return found


def children() -> list[int]:
    """List this process's children, those that have ended and were not waited for included."""
    pids: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as file:
            pids += [int(word) for word in file.read().split()]
    return pids


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return "ended"


def _descriptors(besides: Iterable[int] = ()) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        try:
            if descriptor not in besides:
                found.append((descriptor, os.readlink(f"/proc/self/fd/{descriptor}")))
        except OSError:
            continue  # the one by which the folder was read
    return found


def _connections() -> list[str]:
    found: list[str] = []
    for descriptor, target in _descriptors():
        if target.startswith("/dev/nvidia"):
            found.append(f"an open GPU context ({target})")
        elif target.startswith(syscalls.TERMINALS):
            found.append(f"an open terminal ({target})")
        elif target.startswith("socket:"):
            with socket.socket(fileno=os.dup(descriptor)) as opened:
                if opened.family in (socket.AF_INET, socket.AF_INET6):
                    found.append(f"a network socket ({_end(opened)})")
    return found


def _end(opened: socket.socket) -> str:
    try:
        return "to {}:{}".format(*opened.getpeername()[:2])
    except OSError:
        return "at {}:{}".format(*opened.getsockname()[:2])


def _shared_memory() -> list[str]:
    found: list[str] = []
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if fields[1][1] == "w" and fields[1][3] == "s":
                found.append(
                    f"memory that is shared on purpose ({fields[5].strip() if len(fields) > 5 else 'anonymous'})"
                )
    return list(dict.fromkeys(found))


class _File(NamedTuple):
    descriptor: int
    path: str
    flags: int
    position: int


class Frozen:
    """What a fork alone does not preserve, noted before it: positions in open files; and which signals the session hears."""

    def __init__(self, *, flush: bool, besides: set[int]) -> None:
        """Note it. `flush`: first write out what open files hold back, or both sides would. `besides`: no files of code's."""
        # The kernel may tell how many descriptors there are (since 6.2): mostly none but ours.
        none = os.stat("/proc/self/fd").st_size == len(besides)
        self._files = [] if none else _open_files(besides)
        if flush and any(file.flags & os.O_ACCMODE != os.O_RDONLY for file in self._files):
            _flush_files()
            self._files = _open_files(besides)
        self._blocked: set[int] | None = None  # while signals wait

    def be_deaf(self, *, but: Collection[int] = ()) -> None:
        """From now on let all signals wait that can, `but` some."""
        blocked = _set_blocked(_SET, _ALL_SIGNALS.difference(but))
        if self._blocked is None:
            self._blocked = blocked

    def hear(self) -> None:
        """Hear signals as before, and those that have come meanwhile."""
        if self._blocked is not None:
            _set_blocked(_SET, self._blocked)
            self._blocked = None

    def hear_again(self) -> None:
        """In the fork: hear signals as before, but none that have come meanwhile: they were meant for the session of then."""
        while waiting := signal.sigpending():
            signal.sigtimedwait(waiting, 0)
        self.hear()

    def thaw(self, *, moved: tuple[str, str] = ("", "")) -> None:
        """In the fork: go on exactly as the other side would have.

        `moved`: what was in the first folder is in the second one here.
        """
        thread: Any = threading.current_thread()
        thread._set_native_id()  # the kernel's number of it, which is another one now
        for file in self._files:
            _reopen(file, *moved)


def _open_files(besides: set[int]) -> list[_File]:
    return [file for file in map(_open_file, _descriptors(besides)) if file is not None]


def _open_file(entry: tuple[int, str]) -> _File | None:
    descriptor, path = entry
    try:
        if not path.startswith("/") or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return _File(
            descriptor,
            path,
            fcntl.fcntl(descriptor, fcntl.F_GETFL) & _SETTABLE,
            os.lseek(descriptor, 0, os.SEEK_CUR),
        )
    except OSError:
        return None


def _reopen(file: _File, before: str, after: str) -> None:
    """Give the descriptor an open file of its own: a fork shares the position with the other side, and the folder too."""
    try:
        # That file itself may have been put aside meanwhile: restoring the work folder puts another in its place.
        if os.readlink(f"/proc/self/fd/{file.descriptor}").removesuffix(" (deleted)") != file.path:
            return  # another file by now: what is left of it stays shared
        path = after + file.path[len(before) :] if file.path.startswith(f"{before}/") else file.path
        opened = os.open(path, file.flags | os.O_CLOEXEC)
    except OSError:
        return  # closed meanwhile, by the collector say
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
                continue  # read-only, or broken: nothing of it is lost by the fork


def reseed() -> None:
    """In a branch: begin random numbers anew in the libraries that are loaded and allow it: random, numpy, torch."""
    seed = int.from_bytes(os.urandom(8), "little")
    if "random" in sys.modules:
        sys.modules["random"].seed()
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and "numpy.random" in sys.modules:
        numpy.random.seed(seed & 0xFFFFFFFF)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed >> 1)
