"""The byte stream to a runtime server, and the process at its other end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import IO

from ..errors import BackendError
from ..runtime.linux.retry import PASSING
from .server_process import ServerProcess

_READ_BYTES = 1 << 16  # with a larger buffer each read returns memory to the kernel
_EXIT_SECONDS = 60.0  # to end all cells and clean up: a temporary folder may hold 1,000,000 files
_STDERR_BYTES = 2000  # of the server's standard error that an error message quotes


class Transport(ABC):
    """Bytes to and from one runtime server. Belongs to the background loop.

    pid   process ID of the server; 0 if it does not run on this machine
    """

    pid: int = 0

    @abstractmethod
    def start(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Start to read: call `on_data` with received bytes, and `on_end` at the end."""

    @abstractmethod
    def send(self, data: bytes) -> None:
        """Send `data` without waiting. If the stream has ended, `on_end` is called."""

    @abstractmethod
    def pause_reading(self) -> None:
        """Stop reading for now, so that the server has to wait."""

    @abstractmethod
    def resume_reading(self) -> None:
        """Read again."""

    def has_ended(self) -> bool:
        """Return True if the server has closed the stream, though its end is not read yet."""
        return False

    @abstractmethod
    def detach(self) -> None:
        """Stop reading and writing for good."""

    @abstractmethod
    def stderr_tail(self) -> str:
        """Return the last text that the server wrote to its standard error."""

    @abstractmethod
    async def close(self) -> None:
        """Close the stream and wait until the server and all its cells are gone.

        Raise `BackendError` if the server does not exit in time.
        """

    @abstractmethod
    def close_in_child(self) -> None:
        """Close the parent's stream in a forked child."""


class SocketTransport(Transport):
    """A server of this machine, process `pid`, at the other end of a socket."""

    def __init__(self, stream: socket.socket, pid: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket, self.pid = stream, pid
        self._socket.setblocking(False)
        self._outgoing = bytearray()
        self._on_data: Callable[[bytes], None] = lambda data: None
        self._on_end: Callable[[], None] = lambda: None
        # For executors that are garbage-collected without `stop`, in any thread.
        weakref.finalize(self, _close_soon, self._loop, stream).atexit = False

    def start(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """See `Transport`."""
        self._on_data, self._on_end = on_data, on_end
        self.resume_reading()

    def pause_reading(self) -> None:
        """See `Transport`."""
        self._loop.remove_reader(self._socket)

    def resume_reading(self) -> None:
        """See `Transport`."""
        # The loop, which lives as long as the process, must not keep this object alive.
        on_readable = weakref.WeakMethod(self._on_readable)
        self._loop.add_reader(self._socket, _call_if_alive, on_readable)

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            if error.errno in PASSING:
                return
            data = b""
        if data:
            self._on_data(data)
        else:
            self._on_end()

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        is_waiting = bool(self._outgoing)
        self._outgoing += data
        if not is_waiting and self._send_available():
            self._loop.add_writer(self._socket, self._on_writable)

    def _send_available(self) -> bool:
        """Send what the socket accepts now. Return True if the rest must be sent later."""
        try:
            sent = self._socket.send(self._outgoing)
        except OSError as error:
            if error.errno not in PASSING:
                return False  # the reading side reports the cause
            sent = 0
        del self._outgoing[:sent]
        return bool(self._outgoing)

    def _on_writable(self) -> None:
        if not self._send_available():
            self._loop.remove_writer(self._socket)

    def has_ended(self) -> bool:
        """See `Transport`."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except OSError as error:
            return error.errno not in PASSING

    def detach(self) -> None:
        """See `Transport`."""
        self.pause_reading()

    def _close_socket(self) -> None:
        self._loop.remove_writer(self._socket)
        # A child that another library has forked holds a duplicate of the descriptor, so `close`
        # alone would not end the stream. The peer may have closed it already.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def close_in_child(self) -> None:
        """See `Transport`."""
        with contextlib.suppress(OSError):
            self._socket.close()


def _call_if_alive(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    if (call := method()) is not None:
        call()


def _close_soon(loop: asyncio.AbstractEventLoop, stream: socket.socket) -> None:
    def close() -> None:
        loop.remove_reader(stream)
        stream.close()

    if stream.fileno() >= 0:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(close)


def _wait_soon(
    loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], log: IO[bytes]
) -> None:
    """Close the log of a server that ends because its stream is closed, and let a thread wait."""

    def wait() -> None:
        threading.Thread(target=process.wait, daemon=True).start()

    log.close()
    if process.returncode is None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(wait)


class ProcessTransport(SocketTransport):
    """A server that is a child process of this one."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(server.stream, server.process.pid)
        self._process, self._stderr = server.process, server.stderr
        # For executors that are garbage-collected without `stop`: no warning, no zombie.
        end = weakref.finalize(self, _wait_soon, self._loop, self._process, self._stderr)
        end.atexit = False

    def stderr_tail(self) -> str:
        """See `Transport`."""
        self._stderr.seek(0)
        return self._stderr.read()[-_STDERR_BYTES:].decode(errors="replace").strip()

    async def close(self) -> None:
        """See `Transport`."""
        self._close_socket()
        has_exited = await asyncio.to_thread(_wait_or_kill, self._process, _EXIT_SECONDS)
        self._stderr.close()
        if not has_exited:
            raise BackendError(
                f"The runtime server (process {self.pid}) did not exit within "
                f"{_EXIT_SECONDS:.0f} s and was killed."
            )


class SharedTransport(SocketTransport):
    """A tenant's own stream to the server that `server` leads to, which others use as well."""

    def __init__(self, stream: socket.socket, server: Transport) -> None:
        super().__init__(stream, server.pid)
        self._server = server

    def stderr_tail(self) -> str:
        """See `Transport`."""
        return self._server.stderr_tail()

    async def close(self) -> None:
        """See `Transport`. Only the tenant's own cells are ended, and the server stays."""
        self._loop.remove_writer(self._socket)
        try:
            await asyncio.wait_for(self._drain(), _EXIT_SECONDS)
        except TimeoutError as error:
            raise BackendError(
                f"The runtime server (process {self.pid}) did not end the cells of an executor "
                f"within {_EXIT_SECONDS:.0f} s."
            ) from error
        finally:
            self._close_socket()

    async def _drain(self) -> None:
        """Close our side and wait for the server to close its side: then all cells are gone."""
        with contextlib.suppress(OSError):  # the server has closed the stream or exited
            await self._loop.sock_sendall(self._socket, self._outgoing)
            self._socket.shutdown(socket.SHUT_WR)
            while await self._loop.sock_recv(self._socket, _READ_BYTES):
                pass


def _wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for `process` to exit, and kill it after `seconds`. Return True if it exited in time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True
