"""The first process's end of the process that starts commands."""

from __future__ import annotations

import marshal
import os
import signal
import socket
from collections.abc import Callable, Sequence

from ...box_orders import RunCommand
from ...linux import process_tree
from ...linux.retry import receive
from ..poll_loop import PollLoop
from .confined_fork import Home, fork_confined
from .launcher_process import ORDER, REPORT, CommandStart, LaunchReport, serve_launches
from .pipe_writer import PipeWriter

_OF_THE_USER = (b"HOME", b"USER", b"LOGNAME", b"PATH", b"VIRTUAL_ENV")  # variables


class Launcher:
    """Starts commands. `on_report` receives what happens to them. It returns False if it cannot be.

    The process is confined as commands are, and they could attack it: it is killed if it reports
    what cannot be.

    `on_end` is called when the process has ended, which a command can bring about. Its children
    become those of the first process then, and the next command starts another one.
    """

    def __init__(
        self,
        loop: PollLoop,
        home: Home,
        on_report: Callable[[LaunchReport], bool],
        on_end: Callable[[Launcher], None],
    ) -> None:
        self._loop, self.home = loop, home
        self._on_report, self._on_end = on_report, on_end
        self.pid = 0
        self._link: socket.socket | None = None
        self._order_pipes: list[PipeWriter] = []  # that are not written yet

    def start(self, number: int, order: RunCommand, descriptors: Sequence[int]) -> None:
        """Start the command of `order`. Raise `OSError`, or `ValueError`.

        `descriptors` are its standard streams, without the first one if that is `/dev/null`.
        """
        message = marshal.dumps(tuple(_command_start(order, self.home)))
        link = self._link or self._fork()
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(writer, False)
            try:
                socket.send_fds(link, [ORDER.pack(number)], [reader, *descriptors])
            except ConnectionError:  # it was killed just now: this starts another one
                self.close()
                self._on_end(self)
                socket.send_fds(self._fork(), [ORDER.pack(number)], [reader, *descriptors])
        except BaseException:
            os.close(writer)
            raise
        finally:
            os.close(reader)
        order_pipe = PipeWriter(self._loop, writer, lambda: None)
        order_pipe.add(message)
        order_pipe.add(b"")
        self._order_pipes = [pipe for pipe in (*self._order_pipes, order_pipe) if pipe.is_open]

    def _fork(self) -> socket.socket:
        self.pid, link = fork_confined(self.home, socket.SOCK_SEQPACKET, serve_launches)
        link.setblocking(False)
        self._loop.watch(link.fileno(), self._on_packet)
        self._link = link
        return link

    def unpause(self) -> None:
        """Continue the process: a command may have stopped it."""
        if self._link is not None:
            process_tree.send_signal(self.pid, signal.SIGCONT)

    def _on_packet(self) -> None:
        if self._link is None:
            return
        if (received := receive(self._link, REPORT.size)) is None:
            return
        packet, _ = received
        if len(packet) == REPORT.size:
            report = LaunchReport(*REPORT.unpack(packet))
            if report.is_valid() and self._on_report(report):
                return
            process_tree.send_signal(self.pid, signal.SIGKILL)
        self.close()
        self._on_end(self)

    def close(self) -> None:
        """Let the process end."""
        if self._link is not None:
            self._loop.unwatch(self._link.fileno())
            self._link.close()
            self._link = None
        for pipe in self._order_pipes:
            pipe.close()


def _command_start(order: RunCommand, home: Home) -> CommandStart:
    """Return what to start for `order`. Raise `ValueError` for what no program can get."""
    folder = home.path(order.cwd)
    environment = dict(home.environment)
    if home.user:  # its process knows them
        for name in _OF_THE_USER:
            environment.pop(name, None)
    if b"PWD" in environment:
        environment[b"PWD"] = _encode(folder)
    environment |= {_encode(name): _encode(value) for name, value in order.env}
    argv = [_encode(argument) for argument in order.argv]
    words = (*argv, _encode(folder), *environment, *environment.values())
    if not argv or any(b"\0" in word for word in words):
        raise ValueError("an argument, the folder or a variable is not valid")
    if any(not name or b"=" in name for name in environment):
        raise ValueError("the name of a variable is not valid")
    return CommandStart(argv, _encode(folder), environment)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
