"""Link: the stream to a cell server, whatever carries it, and what is at its other end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, ClassVar

from ..errors import BackendError
from .socket_reader import Ear

_READ = 1 << 16  # more would make each read give memory back to the kernel
_END = 60.0  # seconds that a server may take to end its cells and clean up: a temporary folder may hold a million files

PACKAGE = Path(__file__).resolve().parent.parent


class Link(ABC):
    """Bytes to and from one cell server. Belongs to the engine's loop, unless it serves all.

    pid                its process, when that is one of this machine; else 0
    serves_all_loops   `send`, `listen` and `pause` may be called on any loop
    """

    pid: int = 0
    serves_all_loops: ClassVar[bool] = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop on which what comes is handed over, if it is known."""
        return None

    def listen(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Hand over on `loop`, the one that calls, what comes from now on; tell whether that can be."""
        return False

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
        """Hang up and wait until the server is gone, and all its cells. Raises `BackendError` when it does not go."""

    @abstractmethod
    def forget(self) -> None:
        """In a forked child: let go of a stream that is the parent's."""


class SocketLink(Link):
    """A server of this machine, process `pid`, at the other end of a socket."""

    serves_all_loops = True

    def __init__(self, stream: socket.socket, pid: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, self.pid = stream, pid
        self._socket.setblocking(False)
        self._ear = Ear(self._socket, self._on_readable)
        self._sending = threading.Lock()
        self._outgoing = bytearray()
        self._on_data: Callable[[bytes], None] = lambda data: None
        self._on_end: Callable[[], None] = lambda: None

    def begin(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """See `Link`."""
        self._on_data, self._on_end = on_data, on_end
        self._ear.listen(self._loop)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """See `Link`."""
        return self._ear.loop

    def listen(self, loop: asyncio.AbstractEventLoop) -> bool:
        """See `Link`."""
        return self._ear.listen(loop)

    def pause(self) -> None:
        """See `Link`."""
        self._ear.rest()

    def resume(self) -> None:
        """See `Link`."""
        self._ear.listen(asyncio.get_running_loop())

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
        with self._sending:
            waiting = bool(self._outgoing)
            self._outgoing += data
            if not waiting and self._send_now():
                self._loop.call_soon_threadsafe(self._wait_for_room)

    def _send_now(self) -> bool:
        """Send what is taken; tell whether something is left that will be taken later."""
        try:
            sent = self._socket.send(self._outgoing)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False  # the reading side finds out why
        del self._outgoing[:sent]
        return bool(self._outgoing)

    def _wait_for_room(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_writer(self._socket, self._on_room)

    def _on_room(self) -> None:
        with self._sending:
            if not self._send_now():
                self._loop.remove_writer(self._socket)

    def let_go(self) -> None:
        """See `Link`."""
        self._ear.end()

    def _hang_up(self) -> None:
        self._loop.remove_writer(self._socket)
        with contextlib.suppress(OSError):  # it has hung up
            self._socket.shutdown(
                socket.SHUT_RDWR
            )  # also for a loop that has had no time yet to let go of the stream
        self._socket.close()

    def forget(self) -> None:
        """See `Link`."""
        self._ear.forget()
        with contextlib.suppress(OSError):
            self._socket.close()


class ProcessLink(SocketLink):
    """A server that is a process of ours."""

    def __init__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str] | None,
        inherited: Sequence[int] = (),
    ) -> None:
        """Start it. Raises `OSError`. `environment` None means this process's own; it gets the descriptors `inherited`."""
        ours, theirs = socket.socketpair()
        # Not a pipe: nobody would read it while the server lives.
        self._log: BinaryIO = tempfile.TemporaryFile()
        try:
            # Not in a thread: a cancellation in the middle would lose the process.
            self._process = _spawn(argv, theirs, self._log, environment, inherited)
        except BaseException:
            ours.close()
            self._log.close()
            raise
        finally:
            theirs.close()
        super().__init__(ours, self._process.pid)

    def last_words(self) -> str:
        """See `Link`."""
        self._log.seek(0)
        return self._log.read()[-2000:].decode(errors="replace").strip()

    async def close(self) -> None:
        """See `Link`."""
        self._hang_up()
        ended = await asyncio.to_thread(_reap, self._process, _END)
        self._log.close()
        if not ended:
            raise BackendError(
                f"The cell server (process {self.pid}) did not end within {_END:.0f} s."
            )


class GuestLink(SocketLink):
    """A server that others use as well, over streams of their own: `server` leads to it."""

    def __init__(self, stream: socket.socket, server: Link) -> None:
        super().__init__(stream, server.pid)
        self._server = server

    def last_words(self) -> str:
        """See `Link`."""
        return self._server.last_words()

    async def close(self) -> None:
        """See `Link`."""
        self._loop.remove_writer(self._socket)
        try:
            await asyncio.wait_for(self._see_off(), _END)
        except TimeoutError as error:
            raise BackendError(
                f"The cell server (process {self.pid}) did not let go of an executor within {_END:.0f} s."
            ) from error
        finally:
            self._hang_up()

    async def _see_off(self) -> None:
        """Say that nothing more will come, and wait until the server hangs up: then all cells are gone."""
        with contextlib.suppress(OSError):  # it has hung up, or ended
            await self._loop.sock_sendall(self._socket, self._outgoing)
            self._socket.shutdown(socket.SHUT_WR)
            while await self._loop.sock_recv(self._socket, _READ):
                pass


def start_process(
    text: str,
    python: str | None,
    environment: Mapping[str, str] | None,
    inherited: Sequence[int] = (),
) -> ProcessLink:
    """Start a cell server as a process of this machine. `text` is its program, out of `cell.boot`. Raises `BackendError`."""
    argv = [python or sys.executable, "-I", "-S", "-c", text, str(PACKAGE)]
    try:
        return ProcessLink(argv, environment, inherited)
    except OSError as error:
        raise BackendError(
            f"The cell server cannot be started with {argv[0]}: {error.strerror}."
        ) from error


def _spawn(
    argv: Sequence[str],
    control: socket.socket,
    log: BinaryIO,
    environment: Mapping[str, str] | None,
    inherited: Sequence[int],
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        stdin=control.fileno(),
        stdout=control.fileno(),
        stderr=log,
        env=environment,
        start_new_session=True,
        cwd="/",
        pass_fds=inherited,
    )


def _reap(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True
