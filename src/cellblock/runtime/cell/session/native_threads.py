"""Native threads: who started them, and which of them a fork may lose.

A fork copies the calling thread only. Some libraries notice that and start their threads again, or
do without them. Others let their threads be ended before the fork. The next parallel operation of
any other library would wait for ever in the fork, so its threads prevent a copy.
"""

from __future__ import annotations

import array
import bisect
import contextlib
import ctypes
import gc
import os
import platform
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

_JEMALLOC = "jemalloc_bg_thd"
# Ends its pool in a handler of forks, also while it waits actively, which it does for 0.1 s.
_OPENBLAS = r"/lib(scipy_)?openblas[^/]*$"
# Threads that a fork may lose while they wait: the library's file, and their own name if any.
# Each row was tried: use the library, fork, use it in both. What the library does:
_SAFE = (
    (r"", _JEMALLOC),  # the allocator handles forks and does without its thread then
    (r"/libarrow[^/]*$", ""),  # pyarrow makes its pools anew, in a handler of forks
    (r"/numexpr/interpreter\.", ""),  # makes its pool anew if the process ID has changed
    (_OPENBLAS, ""),
    (r"/lib(iomp5|omp)[^/]*\.so", ""),  # LLVM's and Intel's OpenMP: a handler of forks
    (r"/lib(iomp5|omp)[^/]*\.so", "openmp_worker"),  # in later versions
    # Deletes files of queries that do not fit into memory, and those of processes that have ended.
    (r"/_polars_runtime[^/]*$", "polars-ooc-clea"),
)
# Libraries that are below the start function of a thread on its stack, no matter what started it.
_RUNTIMES = re.compile(r"/(libc|libpthread|libstdc\+\+|libc\+\+|ld-|libpython|python)[^/]*$|^\[|^$")
_GOMP = re.compile(r"/libgomp[^/]*$")
# Of /proc/self/maps: mapped code, and what is no file, such as stacks.
_CODE = re.compile(r"^(\w+)-(\w+) ..x\S* \S+ \S+ \S+ *(.*)$", re.M)
_ANONYMOUS = re.compile(r"^(\w+)-(\w+) \S+ \S+ \S+ 0 *$", re.M)
_OMP_PAUSE_HARD = 2
_DUCKDB_MINIMUM = {"threads": 1, "async_threads": 0}  # later versions have the second one
_DUCKDB_FILES = """
    SELECT (SELECT count(*) FROM duckdb_databases() WHERE path IS NOT NULL AND NOT readonly)
    + (SELECT count(*) FROM duckdb_temporary_files())"""
# System calls of threads that wait for others.
_FUTEX, _READ = {"x86_64": ("202", "0"), "aarch64": ("98", "63")}.get(
    platform.machine(), (None, None)
)
_GRACE = 0.3  # seconds for threads to finish what they do; Intel's OpenMP waits actively for 0.2
_POLL_INTERVAL = 0.0005
_USUAL_STACK = 64 << 10  # bytes that are read of one
_MAX_STACK = 8 << 20  # bytes that are read if that is not all of it
_WORD = array.array("L").itemsize
_MAX_DESCRIPTOR = 512  # words of glibc's description of a thread, above its stack


class _Thread(NamedTuple):
    number: str
    name: str  # "" if it has none
    owner: str  # path of the library that started it; "" if unknown

    def is_waiting(self) -> bool:
        """Return True if it waits for work, and so holds no lock. True if it has ended."""
        if self.name == _JEMALLOC:  # the allocator takes its locks before a fork
            return True
        call, *arguments = _read(f"{self.number}/syscall").split() or [""]
        if call == _READ:
            # pyarrow has a thread that waits for signals at a pipe.
            with contextlib.suppress(OSError):
                return os.readlink(f"/proc/self/fd/{int(arguments[0], 16)}").startswith("pipe:")
        return call in ("", _FUTEX) if _FUTEX else call != "running"

    def is_safe(self) -> bool:
        return any(re.search(path, self.owner) and name == self.name for path, name in _SAFE)

    def may_end(self) -> bool:
        """Return True if `end_pools` can end it."""
        is_pool = _GOMP.search(self.owner) or _library_name(self.owner) == "duckdb"
        return bool(is_pool) and self.number not in _lasting

    def describe(self) -> str:
        if self.name:
            return f"the thread {self.name!r}"
        return f"a thread of {_library_name(self.owner)}" if self.owner else "a native thread"


_known: dict[tuple[str, str], _Thread] = {}  # by number and time of start
_restarts: list[Callable[[], object]] = []  # start again what ended before a fork
_connections: weakref.WeakSet[Any] = weakref.WeakSet()  # of duckdb, one for each database
# Its function, once there is one. It makes one, and no object of Python's refers to it.
_default_connection: list[Callable[[], Any]] = []
_duckdb_settings: list[str] = []
_lasting: set[str] = set()  # threads that did not end although all was done for that
_busy: set[str] = set()  # threads that did not wait for work when it was last looked at


def describe_obstacles() -> list[str]:
    """Describe the native threads without which a fork after `end_pools` cannot continue."""
    return [
        thread.describe()
        for thread in _list_threads()
        if not thread.is_safe() or thread.number in _busy
    ]


def predict_obstacles() -> list[str]:
    """Describe the obstacles that are likely to remain when all was done for a copy.

    Threads of unknown owners are left out: those of a pool that has just begun look the same.
    """
    return [
        thread.describe()
        for thread in _list_threads()
        if (thread.owner or thread.name) and not (thread.is_safe() or thread.may_end())
    ]


def end_pools() -> None:
    """End the pools of libraries that allow it, and wait until the others have no work left.

    Call `restart_pools` in this process and in its forks before user code runs again.
    """
    _end_openmp_pools()
    if threading.active_count() == 1:
        _end_duckdb_pools()
    # Without an owner: threads of Python end a moment later for the kernel.
    waited_for = [
        thread
        for thread in _list_threads()
        if not re.search(_OPENBLAS, thread.owner)
        and (thread.is_safe() or not (thread.owner or thread.number in _lasting))
    ]
    deadline = time.monotonic() + _GRACE
    _busy.clear()
    while busy := {thread.number for thread in waited_for if not thread.is_waiting()}:
        if time.monotonic() >= deadline:
            _busy.update(busy)
            break
        time.sleep(_POLL_INTERVAL)
    _lasting.clear()
    _lasting.update(thread.number for thread in _list_threads())


def restart_pools() -> None:
    """Give the pools that `end_pools` has ended their number of threads again."""
    while _restarts:
        _restarts.pop()()


# threads and their owners


def _list_threads() -> list[_Thread]:
    """Return the threads that are not Python's."""
    python = {str(thread.native_id) for thread in threading.enumerate()}
    python.add(str(threading.get_native_id()))
    numbers = sorted(set(os.listdir("/proc/self/task")) - python, key=int)
    own_name = _read(f"{threading.get_native_id()}/comm").strip()
    found: dict[tuple[str, str], _Thread] = {}
    for number in numbers:
        # The name may contain anything. The 20th word after it is the time of the start.
        name, _, words = _read(f"{number}/stat").partition("(")[2].rpartition(")")
        if not words:
            continue  # it has ended
        key = number, words.split()[19]
        if (thread := _known.get(key)) is None or not thread.owner:
            thread = _Thread(number, "" if name == own_name else name, _find_owner(number))
        found[key] = thread
    _known.clear()
    _known.update(found)
    return [*found.values()]


def _read(name: str) -> str:
    try:
        with open(f"/proc/self/task/{name}", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # it has ended, or this system does not tell


class LoadedCode:
    """The code in this process and the files that it comes from."""

    _current: LoadedCode | None = None

    def __init__(self, loads: tuple[int, int]) -> None:
        self._loads, found = loads, _CODE.findall(_read_mappings())
        self._code = [(int(start, 16), int(end, 16), path) for start, end, path in found]
        self._starts = [start for start, _, _ in self._code]
        self.gomp = {path for _, _, path in self._code if _GOMP.search(path)}

    @classmethod
    def current(cls) -> LoadedCode:
        """Return it. It is read again after a library was loaded or unloaded, which takes 10 ms."""
        loads = _count_loads()
        if cls._current is None or cls._current._loads != loads:
            cls._current = cls(loads)
        return cls._current

    def file_at(self, address: int) -> str:
        """Return the path of the file with the code at `address`, or ""."""
        index = bisect.bisect_right(self._starts, address) - 1
        _, end, path = self._code[index]
        return path if index >= 0 and address < end else ""


class _LoadedObject(ctypes.Structure):
    """`struct dl_phdr_info`, which also says how many libraries were ever loaded and unloaded."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("header_count", ctypes.c_uint16),
        ("loads", ctypes.c_ulonglong),
        ("unloads", ctypes.c_ulonglong),
    )


_ObjectVisitor = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(_LoadedObject), ctypes.c_size_t, ctypes.c_void_p
)


def _count_loads() -> tuple[int, int]:
    """Return how many libraries this process has loaded and unloaded."""
    counts = [(0, 0)]

    def visit(found: Any, _size: int, _data: object) -> int:
        counts[0] = found[0].loads, found[0].unloads
        return 1  # all objects have the same counts

    ctypes.CDLL(None).dl_iterate_phdr(_ObjectVisitor(visit), None)
    return counts[0]


def _read_mappings() -> str:
    with open("/proc/self/maps", errors="surrogateescape") as file:
        return file.read()


def _find_owner(number: str) -> str:
    """Return the path of the library whose function was called first in a thread that waits."""
    call = _read(f"{number}/syscall").split()
    if len(call) < 3:
        return ""  # it runs
    owner, code = "", LoadedCode.current()
    for word in _read_stack(int(call[-2], 16)):
        if (path := code.file_at(word)) and not _RUNTIMES.search(path):
            owner = path
    return owner


def _read_stack(pointer: int) -> Iterable[int]:
    """Return the words from a stack's pointer to its bottom, which has the highest address."""
    words = _read_words(pointer, _USUAL_STACK)
    if (count := _count_to_description(words, pointer)) is None:
        stacks = (
            (int(start, 16), int(end, 16)) for start, end in _ANONYMOUS.findall(_read_mappings())
        )
        end = next((end for start, end in stacks if start <= pointer < end), pointer)
        words = _read_words(pointer, min(end - pointer, _MAX_STACK))
        count = _count_to_description(words, pointer)
    return words if count is None else words[: count + _MAX_DESCRIPTOR]


def _read_words(address: int, size: int) -> array.array[int]:
    try:
        # Not by `ctypes`: the pages of another thread's guard can be in the same mapping.
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(memory, size, address)
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        return array.array("L")
    return array.array("L", data[: len(data) // _WORD * _WORD])


def _count_to_description(words: array.array[int], pointer: int) -> int | None:
    """Return how many words are above glibc's description of the thread; None without one."""
    for index in range(len(words) - 2):
        # It begins with a pointer to itself and has another one.
        if words[index] == words[index + 2] == pointer + index * _WORD:
            return index
    return None


def _library_name(path: str) -> str:
    """Return the name under which people know the library in the file `path`."""
    _, _, installed = path.rpartition("-packages/")
    package = installed.partition("/")[0]
    # Packages bring libraries of others along: "numpy.libs/libscipy_openblas-6cdc3b4a.so".
    name = os.path.basename(path) if package.endswith(".libs") or not package else package
    return re.sub(r"-[0-9a-f]{8}$", "", name.partition(".")[0]).lstrip("_")


# libgomp


def _end_openmp_pools() -> None:
    """End the pools of all copies of libgomp, which packages bring along.

    The next parallel operation makes new ones.
    """
    for path in LoadedCode.current().gomp:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            library.omp_pause_resource_all(_OMP_PAUSE_HARD)


# duckdb


def _has_new_duckdb_threads() -> bool:
    return any(
        _library_name(thread.owner) == "duckdb" and thread.number not in _lasting
        for thread in _list_threads()
    )


def _end_duckdb_pools() -> None:
    """End the pools of all databases of duckdb that can be found."""
    duckdb: Any = sys.modules.get("duckdb")
    if duckdb is None:
        return
    for connection in [*_connections, *(get() for get in _default_connection)]:
        _end_duckdb_pool(connection)
    if _has_new_duckdb_threads():
        # The variables of user code are frozen for the garbage collector, which does not list them.
        for item in gc.get_referents(*gc.get_objects(), vars(sys.modules["__main__"])):
            if type(item) is duckdb.DuckDBPyConnection and _end_duckdb_pool(item):
                _connections.add(item)
    if _has_new_duckdb_threads() and _end_duckdb_pool(duckdb.default_connection()):
        _default_connection[:] = [duckdb.default_connection]


def _end_duckdb_pool(connection: Any) -> bool:
    """End the pool of the database of `connection`. Return True if it had one.

    The pool of a database in a file is not ended: two copies of a session must not write to it.
    """
    with contextlib.suppress(Exception):  # closed, or its settings are locked
        cursor = connection.cursor()  # spares the results of the connection
        names = _find_duckdb_settings(cursor)
        current = ", ".join(f"current_setting('{name}')" for name in names)
        ((files, *values),) = cursor.execute(f"{_DUCKDB_FILES}, {current}").fetchall()
        if files or all(
            value <= _DUCKDB_MINIMUM[name] for name, value in zip(names, values, strict=True)
        ):
            return False
        _restarts.append(lambda: _set(cursor, names, values))
        _set(cursor, names, [_DUCKDB_MINIMUM[name] for name in names])
        return True
    return False


def _find_duckdb_settings(cursor: Any) -> list[str]:
    """Return which settings are the numbers of threads in this version."""
    if not _duckdb_settings:
        rows = cursor.execute("SELECT name FROM duckdb_settings()").fetchall()
        _duckdb_settings.extend(_DUCKDB_MINIMUM.keys() & {name for (name,) in rows})
    return _duckdb_settings


def _set(cursor: Any, names: list[str], values: list[int]) -> None:
    pairs = zip(names, values, strict=True)
    with contextlib.suppress(Exception):  # user code may have closed it
        cursor.execute("; ".join(f"SET {name} TO {value}" for name, value in pairs))
