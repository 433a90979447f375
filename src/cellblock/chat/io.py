"""IOStream: where chats print, and where they read what a person types.

The default stream is the console. `IOStream.set_default(stream)` replaces it within a `with`
block, `IOStream.set_global_default(stream)` in the whole process.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import sys
import threading
from collections.abc import Generator
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

_LONGEST_LINE = 4096  # of a Linux terminal


@runtime_checkable
class OutputStream(Protocol):
    """What a chat can print on."""

    def print(self, *objects: Any, sep: str = " ", end: str = "\n", flush: bool = False) -> None:
        """Print `objects`, with the parameters of Python's `print`."""
        ...


@runtime_checkable
class InputStream(Protocol):
    """What a chat can ask a person."""

    def input(self, prompt: str = "", *, password: bool = False) -> str:
        """Show `prompt` and return the line that the person types, not echoed if `password`."""
        ...


@runtime_checkable
class IOStream(InputStream, OutputStream, Protocol):
    """Both directions: what a chat prints on and reads from."""

    @staticmethod
    def get_default() -> IOStream:
        """Return the stream of the current context: that of the innermost `set_default`."""
        return _context_stream.get() or _process_stream[0]

    @staticmethod
    @contextlib.contextmanager
    def set_default(stream: IOStream | None) -> Generator[None]:
        """Use `stream` within the `with` block; None is the stream of the process."""
        token = _context_stream.set(stream)
        try:
            yield
        finally:
            _context_stream.reset(token)

    @staticmethod
    def get_global_default() -> IOStream:
        """Return the stream of the process."""
        return _process_stream[0]

    @staticmethod
    def set_global_default(stream: IOStream) -> None:
        """Use `stream` in the whole process."""
        _process_stream[0] = stream


class IOConsole(IOStream):
    """The terminal: standard output and standard input."""

    def print(self, *objects: Any, sep: str = " ", end: str = "\n", flush: bool = False) -> None:
        """Print `objects` to standard output."""
        print(*objects, sep=sep, end=end, flush=flush)  # noqa: T201 - what the class is for

    def input(self, prompt: str = "", *, password: bool = False) -> str:
        """Return a line of standard input. Raise `EOFError` at its end."""
        if password:
            return getpass.getpass(prompt or "Password: ")
        if sys.stdin is sys.__stdin__ and sys.stdin.isatty() and not _is_main_thread():
            return _read_terminal_line(prompt)
        return input(prompt)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _read_terminal_line(prompt: str) -> str:
    """Return a line of the terminal, read past Python's buffer.

    Asynchronous chats read in a thread, which Ctrl-C leaves behind. It must not hold the lock of
    `sys.stdin` then: Python would abort at exit. Nor may it change the terminal, as `input` does.
    A terminal returns one line at a time, so nothing can be left in the buffer.
    """
    print(prompt, end="", flush=True)  # noqa: T201
    line = os.read(sys.stdin.fileno(), _LONGEST_LINE)
    if not line:
        raise EOFError("EOF when reading a line")
    return line.decode(sys.stdin.encoding, errors="replace").rstrip("\r\n")


_process_stream: list[IOStream] = [IOConsole()]
_context_stream: ContextVar[IOStream | None] = ContextVar("chat_io_stream", default=None)
