"""Save the variables of a session as values, and load them into a new session.

A fork has no other thread than the one that called it, so it cannot continue as the session if a
library needs its threads. But it has all the memory: it stays a checkpoint, and when the session
has to be restored, a fork of it pickles the variables into the process of the new session.

Both ends are processes of the same cell: a session loads only what its own code has made. What
cannot be pickled, or hangs because a thread is missing, is named with the reason.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import linecache
import os
import pickle
import random
import re
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ...linux import syscalls
from . import fork_state
from .value_pickler import dump, try_in_new_process, use_namespace

_LENGTH = struct.Struct("!i")
_END, _ABORTED = 0, -1  # in place of the length of a piece
_LOADED, _NOT_LOADED = b"+", b"-"
_BUFFER_SIZE = 1 << 20  # bytes
_MAX_HEADER = 64 * 1024 * 1024  # bytes
_MAX_REASON = 200  # characters
_BLOCKED_SECONDS = 2.0  # for which a process sleeps before it counts as blocked for ever
_CHECK_INTERVAL = 0.05  # seconds between looks at a process that reports nothing
# The variables of IPython: inputs, outputs, and what Python itself puts into a module.
_IPYTHONS = re.compile(r"_+|_i+|_i?\d+|_[iod]h|In|Out|__\w+__|get_ipython|exit|quit|open")
_BLOCK_FILES = "<ipython-input-"


class Variables(NamedTuple):
    """The variables of a session, those of IPython among them, and IPython's shell.

    `tasks` describes what cannot be saved: the asyncio tasks that are not done.
    """

    all: dict[Any, Any]
    hidden: Mapping[str, Any]
    shell: Any
    tasks: list[str]

    def users(self) -> dict[str, object]:
        """Return the variables of user code."""
        return {
            name: value
            for name, value in self.all.items()
            if isinstance(name, str)
            and not _IPYTHONS.fullmatch(name)
            and not (name in self.hidden and self.hidden[name] is value)
        }


# saving


def find_unsaveable(variables: Variables) -> list[str]:
    """Return the variables of user code that a new process could not get, with their types."""
    users = variables.users()
    refused = _try_all(users, variables.all, try_in_new_process)
    return [_describe(name, users[name]) for name in refused]


def fork_saver(variables: Variables, descriptor: int) -> None:
    """Fork a process that sends the variables to the session that reads from `descriptor`.

    Raise `OSError`. The process ends by itself.
    """
    if syscalls.fork_without_hooks() == 0:
        try:
            _send(variables, socket.socket(fileno=os.dup(descriptor)))
        finally:
            os._exit(0)


def _send(variables: Variables, link: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    users = variables.users()
    outputs: dict[Any, Any] = variables.all.get("_oh", {})  # user code may have deleted it
    values = users | {f"Out[{number}]": value for number, value in outputs.items()}
    refused = _try_all(values, variables.all)
    header = {
        "lost": [
            *(_describe(name, users[name]) for name in refused if name in users),
            *fork_state.python_threads(),
            *variables.tasks,
        ],
        "kept": {
            name: _describe(name, value) for name, value in values.items() if name not in refused
        },
        "inputs": list(map(str, variables.all.get("_ih", ()))),
        "count": variables.shell.execution_count,
        "environment": dict(os.environ),
        "path": list(map(str, sys.path)),
        "folder": _current_folder(),
        "sources": {
            name: entry[2]
            for name, entry in linecache.cache.items()
            if name.startswith(_BLOCK_FILES) and len(entry) == 4
        },
    }
    data = json.dumps(header).encode()
    link.sendall(_LENGTH.pack(len(data)) + data)
    kept = {name: values[name] for name in values if name not in refused}
    if _send_pickle(link, {"variables": kept, "random": _random_states()}):
        return
    # One of them cannot be loaded: find out which, then send the others together once more. Only
    # together they keep the objects that they share.
    loaded = {
        name: value
        for name, value in kept.items()
        if _send_pickle(link, {"variables": {name: value}})
    }
    _send_pickle(link, {"variables": loaded, "random": _random_states()})


def _send_pickle(link: socket.socket, values: dict[str, object]) -> bool:
    """Send `values` and return True if the other end has loaded them."""
    sink = _PieceWriter(link)
    try:
        dump(values, sink)
        sink.flush()
        link.sendall(_LENGTH.pack(_END))
    except OSError:
        os._exit(1)  # the other end is gone
    except BaseException:
        link.sendall(_LENGTH.pack(_ABORTED))
    return link.recv(1) == _LOADED


class _PieceWriter:
    """A file that sends the data written to it in pieces, each after its length."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._pending, self._size = link, list[bytes](), 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if len(view) + self._size < _BUFFER_SIZE:
            self._pending.append(bytes(view))
            self._size += len(view)
            return len(view)
        self.flush()
        for start in range(0, len(view), 1 << 30):
            piece = view[start : start + (1 << 30)]
            self._link.sendall(_LENGTH.pack(len(piece)))
            self._link.sendall(piece)
        return len(view)

    def flush(self) -> None:
        if self._pending:
            self._link.sendall(_LENGTH.pack(self._size) + b"".join(self._pending))
            self._pending, self._size = [], 0


class _NullWriter:
    """A file that discards the data written to it."""

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


def _dump_to_nothing(value: object) -> None:
    dump(value, _NullWriter())


def _try_all(
    values: dict[str, object],
    namespace: dict[Any, Any],
    use: Callable[[object], None] = _dump_to_nothing,
) -> dict[str, str]:
    """Return the names of the values that cannot be pickled, or for which `use` raises, and why.

    It is called in a fork, which a value may end or block for ever.
    """
    use_namespace(namespace)
    refused: dict[str, str] = {}
    names = list(values)
    while names:
        tried = 0
        for name, reason in _try_in_fork({name: values[name] for name in names}, use):
            tried += 1
            if reason:
                refused[name] = reason
        names = names[tried:]
    return refused


def _try_in_fork(
    values: dict[str, object], use: Callable[[object], None]
) -> Iterator[tuple[str, str]]:
    """Yield the name of each value and why it cannot be pickled, "" if it can.

    Ends after a value that ended or blocked the fork.
    """
    reader, writer = os.pipe()
    try:
        pid = syscalls.fork_without_hooks()
    except OSError:  # the session has too many processes
        for descriptor in (reader, writer):
            os.close(descriptor)
        for name, value in values.items():
            yield name, _why_not_usable(value, _dump_to_nothing)  # `use` needs a fork
        return
    if pid == 0:
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # for `_is_asleep`
        for value in values.values():
            reason = _why_not_usable(value, use).encode(errors="replace")[:_MAX_REASON]
            os.write(writer, bytes([len(reason)]) + reason)
        os._exit(0)
    os.close(writer)
    try:
        for name in values:
            if not _wait_for_data(pid, reader):
                yield name, "it needs a thread that the copy does not have"
                return
            if not (length := os.read(reader, 1)):
                yield name, "to pickle it ends the process"
                return
            yield name, os.read(reader, length[0]).decode(errors="replace")
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _wait_for_data(pid: int, reader: int) -> bool:
    """Wait until `reader` has data or has ended. Return False if process `pid` is blocked."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    blocked_since = time.monotonic()
    while not poll.poll(_CHECK_INTERVAL * 1000):
        if not _is_asleep(pid):
            blocked_since = time.monotonic()
        elif time.monotonic() - blocked_since > _BLOCKED_SECONDS:
            return False
    return True


def _is_asleep(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return False  # it cannot be seen before it has begun, or has ended


def _why_not_usable(value: object, use: Callable[[object], None]) -> str:
    try:
        use(value)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:_MAX_REASON]
    return ""


def _describe(name: str, value: object) -> str:
    return f"{name} ({type(value).__qualname__})"


def _random_states() -> dict[str, object]:
    numpy = sys.modules.get("numpy.random")
    with contextlib.suppress(Exception):
        return {"random": random.getstate(), "numpy": numpy and numpy.get_state()}
    return {}


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


# loading


def load(variables: Variables, descriptor: int) -> list[str]:
    """Load the variables that a saver sends. Describe what could not be saved or loaded.

    Raise `OSError` if the saver could not be made or has ended.
    """
    use_namespace(variables.all)
    for name in variables.users():  # of a branch, whose process begins with other ones
        del variables.all[name]
    with socket.socket(fileno=descriptor) as link:
        size = _LENGTH.unpack(_read_exactly(link, _LENGTH.size))[0]
        header = json.loads(_read_exactly(link, min(size, _MAX_HEADER)))
        _restore_surroundings(variables, header)
        lost: list[str] = header["lost"]
        if not _load_pickle(variables, link):
            for name, description in header["kept"].items():
                if not _load_pickle(variables, link) and not name.startswith("Out["):
                    lost.append(description)
            _load_pickle(variables, link)
        return lost


def _load_pickle(variables: Variables, link: socket.socket) -> bool:
    pieces = _PieceReader(link)
    loaded: Any = None
    try:
        loaded = pickle.Unpickler(io.BufferedReader(pieces, _BUFFER_SIZE)).load()
    except Exception:  # of user code
        pass
    pieces.skip_to_end()
    succeeded = loaded is not None and not pieces.aborted
    if succeeded:
        _store(variables, loaded)
    link.sendall(_LOADED if succeeded else _NOT_LOADED)
    return succeeded


def _store(variables: Variables, loaded: Any) -> None:
    outputs = variables.all["_oh"]
    for name, value in loaded["variables"].items():
        if name.startswith("Out["):
            number = int(name[4:-1])
            outputs[number] = variables.all[f"_{number}"] = value
        else:
            variables.all[name] = value
    with contextlib.suppress(Exception):
        states = loaded["random"]
        random.setstate(states["random"])
        if states["numpy"] is not None:
            importlib.import_module("numpy.random").set_state(states["numpy"])


def _restore_surroundings(variables: Variables, header: dict[str, Any]) -> None:
    """Restore what values may need when they are loaded, and the history of inputs."""
    os.environ.clear()
    os.environ.update(header["environment"])
    sys.path[:] = header["path"]
    with contextlib.suppress(OSError):
        os.chdir(header["folder"])
    for name, lines in header["sources"].items():
        linecache.cache[name] = sum(map(len, lines)), None, lines, name
    with contextlib.suppress(Exception):  # another version of IPython may store it differently
        history = variables.shell.history_manager
        history.input_hist_parsed[:] = header["inputs"]
        history.input_hist_raw[:] = header["inputs"]
        variables.shell.execution_count = header["count"]


class _PieceReader(io.RawIOBase):
    """Reads what a `_PieceWriter` sends, up to the end of one pickle."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._left, self._ended, self.aborted = link, 0, False, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._left == 0 and not self._ended:
            self._left = _LENGTH.unpack(_read_exactly(self._link, _LENGTH.size))[0]
            self._ended = self._left <= 0
            self.aborted = self._left == _ABORTED
        if self._ended:
            return 0
        count = self._link.recv_into(buffer, min(self._left, len(buffer)))
        if count == 0:
            raise ConnectionResetError("the process that saves the variables has ended")
        self._left -= count
        return count

    def skip_to_end(self) -> None:
        """Read and drop the rest of the pickle."""
        buffer = bytearray(_BUFFER_SIZE)
        while self.readinto(buffer):
            pass


def _read_exactly(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (piece := link.recv(min(size - len(data), _BUFFER_SIZE))):
            raise ConnectionResetError("the process that saves the variables has ended")
        data += piece
    return bytes(data)
