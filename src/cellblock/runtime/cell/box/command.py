"""A command: its process, its pipes, and how it ends."""

from __future__ import annotations

import enum
import errno
import functools
import os
import signal
import time
from collections.abc import Callable, Iterable

from ... import protocol
from ...box_orders import BoxAnswer, CommandStarted, RunCommand
from ...linux import process_tree
from ..filesystem import describe_full
from ..poll_loop import FOREVER, PollLoop
from .frame_link import FrameLink
from .launcher import Launcher
from .launcher_process import FOLDER_FAILED, STARTED, USER_FAILED, LaunchReport
from .pipe_writer import PipeWriter
from .users import unknown_user

_READ_BYTES = 1 << 16
_MAX_LAST_READS = 16  # of what is left in a pipe
# Seconds to wait for output of processes that the command has left: without any, and at most.
_QUIET_SECONDS, _MAX_DRAIN_SECONDS = 0.1, 0.25
_KILL_INTERVAL = 0.02  # seconds between looks for processes that were forked meanwhile
_NO_PROGRAM, _TIMED_OUT = 127, 124  # exit codes


class CommandState(enum.Enum):
    """What a command does now.

    STARTING    it has no process yet
    RUNNING     its program runs
    DRAINING    its process has ended; others may still hold its pipes
    ENDED       it has been answered
    """

    STARTING = enum.auto()
    RUNNING = enum.auto()
    DRAINING = enum.auto()
    ENDED = enum.auto()


class CommandOutput:
    """The reading end of one output pipe. `kind` is that of its frames."""

    def __init__(self, kind: int, reader: int, max_bytes: int | None) -> None:
        self.kind, self.reader = kind, reader
        self._left = FOREVER if max_bytes is None else max_bytes
        self.is_truncated = False

    def limited(self, data: bytes) -> bytes:
        """Return the part of `data` that is within the limit."""
        kept = data if len(data) <= self._left else data[: int(self._left)]
        self._left -= len(kept)
        self.is_truncated = self.is_truncated or len(kept) < len(data)
        return kept


class Command:
    """The command that request `number` runs. Raise `OSError` or `ValueError` if it cannot start.

    `on_end` is called once, when it has been answered, with the pipes that processes which it has
    left may still hold.
    """

    def __init__(
        self,
        number: int,
        order: RunCommand,
        launcher: Launcher,
        loop: PollLoop,
        link: FrameLink,
        on_end: Callable[[Command, list[int]], None],
    ) -> None:
        self.number, self.state = number, CommandState.STARTING
        self._order, self._folder = order, launcher.home.path(order.cwd)
        self._loop, self._link, self.launcher, self._on_end = loop, link, launcher, on_end
        self._started = time.monotonic()
        self._deadline = FOREVER if order.seconds is None else self._started + order.seconds
        self._kill_at, self._drain_until, self._last_output = FOREVER, FOREVER, 0.0
        self._is_held = self._is_timed_out = False
        self.pid = 0
        self._exit = LaunchReport(STARTED, 0, 0)  # once its process has ended
        self._outputs: list[CommandOutput] = []
        self._input: PipeWriter | None = None
        self._is_truncated = False
        self._launch()
        self.update_reading()

    def _launch(self) -> None:
        theirs, ours = list[int](), list[int]()
        try:
            if self._order.reads_input:
                reader, writer = os.pipe2(os.O_CLOEXEC)
                theirs.append(reader)
                ours.append(writer)
            for _ in range(1 if self._order.is_merged else 2):
                reader, writer = os.pipe2(os.O_CLOEXEC)
                theirs.append(writer)
                ours.append(reader)
            for descriptor in ours:
                os.set_blocking(descriptor, False)
            passed = [*theirs, theirs[-1]] if self._order.is_merged else theirs
            self.launcher.start(self.number, self._order, passed)
        except BaseException:
            _close_all(ours)
            raise
        finally:
            _close_all(theirs)
        if self._order.reads_input:
            self._input = PipeWriter(self._loop, ours.pop(0), self._on_taken)
        kinds = (protocol.STDOUT, protocol.STDERR)
        limit = self._order.output_bytes
        self._outputs = [CommandOutput(*pair, limit) for pair in zip(kinds, ours, strict=False)]

    # its data

    def add_input(self, data: bytes) -> None:
        """Add a piece of input. An empty one ends it."""
        if self._input is not None:
            self._input.add(data)

    def _on_taken(self) -> None:
        self._link.send(protocol.encode(protocol.BOX_TAKEN, self.number))

    def hold(self, is_held: bool) -> None:
        """Stop reading its output, or go on."""
        self._is_held = is_held
        self.update_reading()

    @property
    def _reads(self) -> bool:
        return not self._is_held and not self._link.is_full

    def update_reading(self) -> None:
        """Read output unless it is held or the link is full."""
        for output in self._outputs:
            if self._reads:
                on_output = functools.partial(self._on_output, output)
                self._loop.watch(output.reader, on_output)
            else:
                self._loop.unwatch(output.reader)
        if self.state is CommandState.DRAINING:
            self._start_drain()

    def _on_output(self, output: CommandOutput) -> None:
        if self._reads and not self._read(output) and not self._outputs:
            self._finish_if_over()

    def _read(self, output: CommandOutput) -> bool:
        """Read once and send it. Return False if there was nothing."""
        try:
            data = os.read(output.reader, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._is_truncated = self._is_truncated or output.is_truncated
            self._outputs.remove(output)
            self._loop.unwatch(output.reader)
            os.close(output.reader)
            return False
        self._last_output = time.monotonic()
        if kept := output.limited(data):
            self._link.send(protocol.encode(output.kind, self.number, kept))
        return True

    # its end

    def next_deadline(self) -> float:
        """Return the time at which `on_timer` must be called."""
        return min(self._deadline, self._kill_at, self._drain_end)

    @property
    def _drain_end(self) -> float:
        if self.state is not CommandState.DRAINING or not self._reads:
            return FOREVER
        return min(self._drain_until, self._last_output + _QUIET_SECONDS)

    def on_timer(self, now: float) -> None:
        """Do the work that is due at the time `now`."""
        if now >= self._deadline:
            self._is_timed_out = True
            self.kill()
        elif now >= self._kill_at:
            self.kill()
        if now >= self._drain_end:
            self._finish_if_over()

    def cancel(self) -> None:
        """Kill it. Nobody waits for its output any more."""
        self.kill()
        self.hold(False)

    def kill(self) -> None:
        """Kill the processes of its session. Those in a session of their own live on."""
        self._deadline = FOREVER
        if self.state is CommandState.ENDED:
            return
        # Again, for what is being forked now, or if there is no process yet.
        is_over = self.state is CommandState.DRAINING
        self._kill_at = FOREVER if is_over else time.monotonic() + _KILL_INTERVAL
        if self.pid:
            process_tree.kill_session(self.pid)

    def send_signal(self, number: int) -> None:
        """Send a signal to its process group. Raise `OSError`."""
        if self.state is CommandState.ENDED or not self.pid:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        os.killpg(self.pid, number)

    def on_report(self, report: LaunchReport) -> None:
        """Its program has started, or could not be."""
        if self.state is not CommandState.STARTING:
            return
        if report.kind != STARTED:
            self._answer(self._describe(report))
            return
        self.state, self.pid = CommandState.RUNNING, report.pid
        self._link.send(CommandStarted(self.pid).encode(self.number))

    def on_launcher_end(self) -> None:
        """The process that starts commands has ended: it was killed."""
        if self.state is CommandState.STARTING:
            error = OSError(errno.EIO, "The process that starts commands was killed")
            self._answer(BoxAnswer.from_error(error))

    def on_exit(self, report: LaunchReport) -> None:
        """Its process has ended, and was reaped."""
        if self.state is not CommandState.RUNNING:
            return
        if self._kill_at < FOREVER:  # what it has forked meanwhile
            process_tree.kill_session(self.pid)
        self.state, self._deadline, self._kill_at = CommandState.DRAINING, FOREVER, FOREVER
        self._exit = report
        self._close_input()
        self._start_drain()
        self._finish_if_over()

    def _start_drain(self) -> None:
        now = time.monotonic()
        self._last_output, self._drain_until = now, now + _MAX_DRAIN_SECONDS

    def _finish_if_over(self) -> None:
        if self.state is not CommandState.DRAINING:
            return
        if self._outputs:
            if time.monotonic() < self._drain_end:
                return
            for output in [*self._outputs]:
                for _ in range(_MAX_LAST_READS):
                    if not self._read(output):
                        break
        code = os.waitstatus_to_exitcode(self._exit.status)
        is_failure = code not in (0, -signal.SIGKILL)  # it was not killed, by a limit or us
        if is_failure and (full := describe_full(self.launcher.home.temporary)):
            self._send_error(full)
        code = _TIMED_OUT if self._is_timed_out else code
        self._answer(
            BoxAnswer(
                128 - code if code < 0 else code,
                self._is_timed_out,
                self._is_truncated or any(output.is_truncated for output in self._outputs),
                wall=time.monotonic() - self._started,
                cpu=self._exit.cpu,
                peak=self._exit.peak,
            )
        )

    def _describe(self, report: LaunchReport) -> BoxAnswer:
        program, number = self._order.argv[0], report.pid
        if report.kind == USER_FAILED:
            return BoxAnswer.from_error(unknown_user(self._order.user))
        if report.kind == FOLDER_FAILED:
            return BoxAnswer.from_error(OSError(number, os.strerror(number)), self._folder)
        if number not in (errno.ENOENT, errno.ENOTDIR):
            return BoxAnswer.from_error(OSError(number, os.strerror(number)), program)
        self._send_error(f"{program}: not found")
        wall = time.monotonic() - self._started
        return BoxAnswer(_NO_PROGRAM, False, False, wall=wall, cpu=0.0, peak=0)

    def _send_error(self, line: str) -> None:
        kind = protocol.STDOUT if self._order.is_merged else protocol.STDERR
        text = f"{line}\n".encode("utf-8", "surrogateescape")
        self._link.send(protocol.encode(kind, self.number, text))

    def _close_input(self) -> None:
        if self._input is not None:
            self._input.close()

    def _answer(self, answer: BoxAnswer) -> None:
        """Answer. What is written from now on is of no interest."""
        self.state = CommandState.ENDED
        self._deadline = self._kill_at = FOREVER
        self._close_input()
        outputs, self._outputs = self._outputs, []
        self._link.send(answer.encode(self.number))
        self._on_end(self, [output.reader for output in outputs])

    def close(self) -> None:
        """Close its descriptors, without an answer."""
        self.state = CommandState.ENDED
        self._close_input()
        for output in self._outputs:
            self._loop.unwatch(output.reader)
            os.close(output.reader)
        self._outputs = []


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
