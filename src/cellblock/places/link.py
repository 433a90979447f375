"""Link: the stream to a cell server, whatever carries it, and what is at its other end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from ..errors import PlaceError

_READ = 1 << 16  # more would make each read give memory back to the kernel
_END = 60.0  # seconds that a server may take to end its cells and clean up: a temporary folder may hold a million files

PACKAGE = Path(__file__).resolve().parent.parent


class Link(ABC):
    """Bytes to and from one cell server. Belongs to the engine's loop.

    pid   its process, when that is one of this machine; else 0
    """

    pid: int = 0

    @abstractmethod
    def begin(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """From now on hand what comes to `on_data`, and call `on_end` when nothing more will."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send `data` as soon as it is taken; does not wait. An end is told of by `on_end`."""

    @abstractmethod
    def pause(self) -> None:
        """Read nothing more for now, so that the server has to wait."""

    @abstractmethod
    def resume(self) -> None:
        """Read again."""

    @abstractmethod
    def let_go(self) -> None:
        """Neither read nor write any more."""

    @abstractmethod
    def last_words(self) -> str:
        """Give what the server said besides, which is why it ended."""

    @abstractmethod
    async def close(self) -> None:
        """Hang up and wait until the server is gone, and all its cells. Raises `PlaceError` when it does not go."""

    @abstractmethod
    def forget(self) -> None:
        """In a forked child: let go of a stream that is the parent's."""


class ProcessLink(Link):
    """A server that is a process of this machine, at the other end of a socket."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None) -> None:
        """Start it. Raises `OSError`. `environment` None means this process's own."""
        self._loop = asyncio.get_running_loop()
        self._socket, theirs = socket.socketpair()
        # Not a pipe: nobody would read it while the server lives.
        self._log: BinaryIO = tempfile.TemporaryFile()
        try:
            # Not in a thread: a cancellation in the middle would lose the process.
            self._process = _spawn(argv, theirs, self._log, environment)
        except BaseException:
            self._socket.close()
            self._log.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._socket.setblocking(False)
        self._outgoing = bytearray()
        self._waits_for_room = False
        self._on_data: Callable[[bytes], None] = lambda data: None
        self._on_end: Callable[[], None] = lambda: None

    def begin(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """See `Link`."""
        self._on_data, self._on_end = on_data, on_end
        self.resume()

    def resume(self) -> None:
        """See `Link`."""
        self._loop.add_reader(self._socket, self._on_readable)

    def pause(self) -> None:
        """See `Link`."""
        self._loop.remove_reader(self._socket)

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self._on_end()

    def send(self, data: bytes) -> None:
        """See `Link`."""
        waiting = bool(self._outgoing)
        self._outgoing += data
        if not waiting:
            self._flush()

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._outgoing)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the reading side finds out why
        del self._outgoing[:sent]
        if self._outgoing:
            self._loop.add_writer(self._socket, self._flush)
        elif self._waits_for_room:
            self._loop.remove_writer(self._socket)
        self._waits_for_room = bool(self._outgoing)

    def let_go(self) -> None:
        """See `Link`."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)

    def last_words(self) -> str:
        """See `Link`."""
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace").strip()

    async def close(self) -> None:
        """See `Link`."""
        self._socket.close()
        ended = await asyncio.to_thread(_reap, self._process, _END)
        self._log.close()
        if not ended:
            raise PlaceError(f"The cell server (process {self.pid}) did not end within {_END:.0f} s.")

    def forget(self) -> None:
        """See `Link`."""
        with contextlib.suppress(OSError):
            self._socket.close()


def start_process(text: str, python: str | None, environment: Mapping[str, str] | None) -> ProcessLink:
    """Start a cell server as a process of this machine. `text` is its program, out of `cell.boot`. Raises `PlaceError`."""
    argv = [python or sys.executable, "-I", "-S", "-c", text, str(PACKAGE)]
    try:
        return ProcessLink(argv, environment)
    except OSError as error:
        raise PlaceError(f"The cell server cannot be started with {argv[0]}: {error.strerror}.") from error


def _spawn(
    argv: Sequence[str], control: socket.socket, log: BinaryIO, environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, stdin=control.fileno(), stdout=control.fileno(), stderr=log, env=environment, start_new_session=True, cwd="/"
    )


def _reap(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True
