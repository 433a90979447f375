"""Carry out the orders to a box, in the first process of the session's cell.

Nothing here waits. What the server does not read yet makes the commands wait.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ... import protocol
from ...box_orders import (
    BOX_ORDERS,
    BoxAnswer,
    BoxOrder,
    CommandProcess,
    EndCommands,
    HoldOutput,
    ListCommands,
    RunCommand,
    SignalCommand,
)
from ...linux import process_tree
from ...packets import decode_packet
from ..poll_loop import FOREVER, PollLoop
from .command import Command, CommandState
from .confined_fork import Home
from .file_workers import FileWorkers
from .frame_link import FrameLink
from .launcher import Launcher
from .launcher_process import ENDED, STARTED, LaunchReport, describe_exit
from .pipe_drain import PipeDrain

_END_INTERVAL, _END_SECONDS = 0.01, 30.0  # between looks for processes that are left; at most


class _Ending(NamedTuple):
    """An order to kill `commands` and what is left, but not `others`; and when it is given up."""

    others: tuple[int, ...]
    commands: frozenset[Command]
    until: float


class BoxService:
    """The commands and files of one box, and the stream to the server.

    `on_end` is called when the server has closed it.
    """

    def __init__(
        self, loop: PollLoop, stream: socket.socket, home: Home, on_end: Callable[[], None]
    ) -> None:
        self._loop, self._on_end = loop, on_end
        self._home, self._launcher = home, self._new_launcher(home)
        self._old_launchers = set[int]()  # the process IDs of those of other users, not yet reaped
        self._link = FrameLink(loop, stream, self._on_frame, self._end, self._update_reading)
        self._drain = PipeDrain(loop)
        self._commands: dict[int, Command] = {}  # by the number of the request
        self._by_pid: dict[int, Command] = {}  # those whose processes have not ended
        self._files = FileWorkers(loop, self._link)
        self._endings: dict[int, _Ending] = {}
        self._look_at = FOREVER

    # what the server sends

    def _on_frame(self, frame: protocol.Frame) -> None:
        for launcher in self._launchers():
            launcher.unpause()
        self._files.unpause()
        if frame.kind == protocol.BOX_REQUEST:
            try:
                self._handle(frame.run, decode_packet(frame.payload, *BOX_ORDERS))
            except (OSError, MemoryError, ValueError, OverflowError) as error:
                self._answer(frame.run, BoxAnswer.from_error(error))
        elif (command := self._commands.get(frame.run)) is not None:
            if frame.kind == protocol.BOX_DATA:
                command.add_input(frame.payload)
            elif frame.kind == protocol.CANCEL:
                command.cancel()
        else:
            self._files.on_frame(frame)

    def _new_launcher(self, home: Home) -> Launcher:
        return Launcher(self._loop, home, self._on_report, self._on_launcher_end)

    def _launcher_for(self, user: str) -> Launcher:
        """Return what starts a command. That of another user starts one: its user may change."""
        home = self._home_of(user)
        return self._new_launcher(home) if home.user else self._launcher

    def _home_of(self, user: str) -> Home:
        """Return the home for a user: a name, a number, or "". Raise `PermissionError`."""
        if user in ("", str(os.geteuid())):
            return self._home
        if self._home.has_users:
            return self._home._replace(user=user)
        with contextlib.suppress(KeyError):
            if pwd.getpwnam(user).pw_uid == os.geteuid():
                return self._home
        why = f": {self._home.one_user}" if self._home.one_user else ""
        raise PermissionError(errno.EPERM, f"commands cannot run as the user {user!r} here{why}")

    def _handle(self, number: int, order: BoxOrder) -> None:
        match order:
            case RunCommand():
                self._commands[number] = Command(
                    number,
                    order,
                    self._launcher_for(order.user),
                    self._loop,
                    self._link,
                    self._retire,
                )
            case SignalCommand():
                if (command := self._commands.get(order.command)) is None:
                    raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
                command.send_signal(order.signal)
                self._answer(number, BoxAnswer())
            case HoldOutput():
                if (command := self._commands.get(order.command)) is not None:
                    command.hold(order.is_held)
                else:
                    self._files.hold(order.command, order.is_held)
                self._answer(number, BoxAnswer())
            case ListCommands():
                self._answer(number, BoxAnswer(processes=self._processes(order.others)))
            case EndCommands():
                commands = frozenset((*self._commands.values(), *self._by_pid.values()))
                until = time.monotonic() + _END_SECONDS
                self._endings[number] = _Ending(order.others, commands, until)
                self._end_commands()
            case _:
                self._files.submit(number, order, self._home_of(order.user))

    def _answer(self, number: int, answer: BoxAnswer) -> None:
        self._link.send(answer.encode(number))

    def _retire(self, command: Command, pipes: Iterable[int]) -> None:
        self._commands.pop(command.number, None)
        self._drain.add(pipes)
        if command.pid not in self._by_pid:
            self._close_launcher(command.launcher)

    def _update_reading(self) -> None:
        for command in self._commands.values():
            command.update_reading()
        self._files.update_reading()

    # its processes

    def _on_report(self, report: LaunchReport) -> bool:
        """Handle what has happened to a command. Return False if that cannot be."""
        if report.kind == ENDED:
            self._on_ended(report)
        elif (command := self._commands.get(report.number)) is not None:
            if report.kind == STARTED:
                if command.state is not CommandState.STARTING or not self._is_new(report.pid):
                    return False
                self._by_pid[report.pid] = command
            command.on_report(report)
        return True

    def _close_launcher(self, launcher: Launcher) -> None:
        """End a launcher whose one command has ended."""
        if launcher is not self._launcher and launcher.pid:
            self._old_launchers.add(launcher.pid)
            launcher.close()
            launcher.pid = 0

    def _launchers(self) -> set[Launcher]:
        commands = (*self._commands.values(), *self._by_pid.values())
        return {self._launcher, *(command.launcher for command in commands)}

    def _launcher_pids(self) -> set[int]:
        return {*(launcher.pid for launcher in self._launchers()), *self._old_launchers}

    def _is_new(self, pid: int) -> bool:
        """Return True if `pid` can be a command's process. It may have ended already."""
        launchers = self._launcher_pids()
        if pid in {*self._by_pid, *self._files.pids(), *launchers}:
            return False
        # Ours, if the process that starts commands was killed meanwhile. 0: not known.
        return process_tree.parent_of(pid) in (*launchers, os.getpid(), 0)

    def _on_ended(self, report: LaunchReport) -> None:
        if (command := self._by_pid.pop(report.pid, None)) is not None:
            command.on_exit(report)
            self._close_launcher(command.launcher)

    def _on_launcher_end(self, launcher: Launcher) -> None:
        """Its children are those of this process now, but for one that it has reaped before."""
        for command in [*self._commands.values()]:
            if command.launcher is launcher:
                command.on_launcher_end()
        for pid in [*self._by_pid]:
            if not process_tree.exists(pid):
                self._on_ended(LaunchReport(ENDED, 0, pid, signal.SIGKILL))

    def on_exit(self, pid: int, status: int, usage: resource.struct_rusage) -> bool:
        """Handle the end of process `pid`, which was reaped. Return False if it is none of ours."""
        is_ours = pid in self._by_pid or pid in self._launcher_pids() or self._files.on_exit(pid)
        self._old_launchers.discard(pid)
        self._on_ended(describe_exit(pid, status, usage))
        return is_ours

    def _topmost(self, others: Iterable[int]) -> set[int]:
        """Return commands and what they have left: the children of this process but `others`."""
        own = {*others, *self._files.pids(), *self._launcher_pids()}
        return ({*process_tree.children(os.getpid())} - own) | {*self._by_pid}

    def _processes(self, others: Iterable[int]) -> tuple[CommandProcess, ...]:
        topmost = self._topmost(others)
        found = [pid for top in topmost for pid in (top, *process_tree.descendants(top))]
        lines = ((pid, process_tree.command_line(pid)) for pid in sorted(found))
        return tuple(CommandProcess(pid, text) for pid, text in lines if text or _is_left(pid))

    def _end_commands(self) -> None:
        """Kill what is left for each order that asks for it, and answer once nothing is."""
        now = time.monotonic()
        for number, ending in [*self._endings.items()]:
            later = {pid for pid, each in self._by_pid.items() if each not in ending.commands}
            left = self._topmost(ending.others) - later
            are_left = bool(left) or any(
                command.state is CommandState.STARTING for command in ending.commands
            )
            if are_left and now < ending.until:
                for pid in left:
                    process_tree.send_signal(pid, signal.SIGSTOP)
                    process_tree.kill_descendants(pid)
                    process_tree.send_signal(pid, signal.SIGKILL)
                continue
            del self._endings[number]
            error = TimeoutError(errno.ETIMEDOUT, "processes that were killed do not end")
            self._answer(number, BoxAnswer.from_error(error) if are_left else BoxAnswer())
        self._look_at = now + _END_INTERVAL if self._endings else FOREVER

    # time

    def next_deadline(self) -> float:
        """Return the time at which `on_timer` must be called."""
        deadlines = [command.next_deadline() for command in self._commands.values()]
        return min([self._look_at, self._files.next_deadline(), *deadlines])

    def on_timer(self, now: float) -> None:
        """Do the work that is due at the time `now`."""
        for command in [*self._commands.values()]:
            command.on_timer(now)
        self._files.on_timer(now)
        if now >= self._look_at:
            self._end_commands()

    # the end

    def _end(self) -> None:
        """Kill the commands: the server has closed the stream."""
        for command in [*self._commands.values()]:
            command.kill()
        self.close()
        self._on_end()

    def close(self) -> None:
        """Close all descriptors, also in a fork that becomes something else."""
        self._link.close()
        for command in self._commands.values():
            command.close()
        self._files.close()
        for command in (*self._by_pid.values(), *self._commands.values()):
            command.launcher.close()
        self._commands.clear()
        self._launcher.close()
        self._drain.close()


def _is_left(pid: int) -> bool:
    """Return False if process `pid` has ended or does so now. One that hides itself has not."""
    is_hidden = process_tree.parent_of(pid) == 0
    return process_tree.exists(pid) if is_hidden else not process_tree.is_ending(pid)
