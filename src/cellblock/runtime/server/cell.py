"""A cell as the server sees it, and the run of a block in it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Sequence
from typing import NamedTuple

from .. import handshake
from ..linux import process_tree
from ..linux.credentials import CREDENTIALS_SPACE, enable_credentials, sender_pid
from ..linux.pidfd import PidFd
from ..linux.retry import receive
from ..linux.safe_folder import create_file_at, write_new_file_at
from ..messages import Ending, Failure, MountSpec, RunRequest, RunTerms
from ..output_limit import OutputLimit
from ..spec import CellLimits, ServerSpec
from .cgroups import CellCgroups
from .event_loop import FOREVER
from .faults import describe
from .pipes import OutputPipes
from .storage import StorageMeter, WritableFolders
from .usage import UsageMeter, exceeded_cpu_limit

# Bytes of code that are sent in the job, so that the block's process need not read the file.
_MAX_INLINE_CODE = handshake.MAX_PACKET // 2
_FIRST_CHECK = 0.05  # seconds until the usage of a run is first measured: most runs have ended
_CHECK_INTERVAL = 0.05
GRACE = 2.0  # seconds that a first process has to end its block before it is killed itself


class CellError(Exception):
    """A cell could not be started, or ended before it had a block. The message says why."""


class Job(NamedTuple):
    """One block that waits for a cell since `arrived`."""

    number: int
    request: RunRequest
    arrived: float

    def cancelled_ending(self) -> Ending:
        """Return the ending of a job that was cancelled before it got a cell."""
        return Ending(None, "cancelled", 0.0, 0.0, 0, time.monotonic() - self.arrived)


def file_failure(error: OSError | MemoryError) -> Failure:
    """Return the report that a file of a block cannot be written."""
    if isinstance(error, OSError) and error.filename:
        return Failure(error.strerror, str(error.filename))
    return Failure(describe(error))


class Run:
    """One block in a cell: its deadline, the file for its output, and why it was stopped."""

    def __init__(
        self,
        number: int,
        arrived: float,
        terms: RunTerms,
        limits: CellLimits,
        folders: WritableFolders,
    ) -> None:
        """Write the code file, and create the output file. Raise `OSError` on failure.

        The block can write to `folders`. The terms can only lower the limits `written_bytes`
        and `cpu_seconds`.
        """
        self.number = number
        self.started = time.monotonic()
        self.queued = self.started - arrived + terms.waited
        self.deadline = self.started + terms.wall_seconds if terms.wall_seconds else FOREVER
        self.next_check = FOREVER
        self.stopped_at = 0.0
        self.why: str | None = None
        self.code_ctime_ns: int | None = None
        self.inline_code: bytes | None = None
        # Not written earlier: each file in the folder makes it slower to create the next one.
        if terms.write is not None:
            path, text = terms.write
            code = text.encode(errors="replace")
            self.code_ctime_ns = write_new_file_at(path, code)
            if len(code) <= _MAX_INLINE_CODE:
                self.inline_code = code
        self._file = -1 if terms.save is None else create_file_at(terms.save)
        if lower := terms.written_bytes:
            limits = limits._replace(written_bytes=min(lower, limits.written_bytes or lower))
        if cpu_seconds := terms.cpu_seconds:
            cpu_seconds = min(cpu_seconds, limits.cpu_seconds or cpu_seconds)
            limits = limits._replace(cpu_seconds=cpu_seconds)
        self.limits = limits
        self.most_output: int | None = None
        self._room = limits.written_bytes or (1 << 62)
        self.storage = StorageMeter(folders, limits)

    def save_output(self, data: bytes) -> None:
        """Append output to the output file, if there is one."""
        if self._file < 0:
            return
        part = data[: self._room]
        self._room -= len(part)
        try:
            os.write(self._file, part)
        except OSError:  # a full disk must not end the server: the file is incomplete then
            self._room = 0

    def close(self) -> None:
        """Close the output file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Cell:
    """A cell's first process, the socket to it, and its usage. With a block: its run and pipes.

    run_ended    the block has ended, and all its processes are gone
    init_lost    the first process ended before it could report the end of the block
    is_used_up   the cell cannot run another block
    """

    def __init__(
        self,
        name: str,
        spec: ServerSpec,
        cgroups: CellCgroups,
        dedicated_to: tuple[Job, Sequence[MountSpec], list[int]] | None = None,
    ) -> None:
        """Make a cell for any blocks, or for one job only, with mounts and their descriptors."""
        self.name = name
        self.job, self.mounts, descriptors = dedicated_to or (None, (), list[int]())
        self._mount_fds = list[int]()
        self.run: Run | None = None
        self.pipes: OutputPipes | None = None
        self.pid = 0
        self.run_ended = False
        self.init_lost = False
        self.is_used_up = False
        self._is_pretouched = False
        # Packets, so that messages of its two processes do not run together.
        self.socket, self._peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            enable_credentials(self.socket)
            self._mount_fds += [os.dup(descriptor) for descriptor in descriptors]
        except BaseException:
            self.close()
            raise
        self._limits = spec.limits
        self._own_processes = spec.zygote.own_processes
        self._cgroups = cgroups
        self._usage: UsageMeter | None = None
        self._pidfd: PidFd | None = None
        self._report: handshake.Report | None = None

    # before a run

    def request_fork(self, zygote: socket.socket) -> None:
        """Ask the zygote to fork the cell's first process."""
        socket.send_fds(zygote, [handshake.CELL], [self._peer.fileno()])
        self._peer.close()

    def read_packet(self) -> bool:
        """Handle a packet of the cell's processes.

        Return True if the cell has become ready for a block. Raise `CellError` if it has failed.
        """
        received = receive(self.socket, handshake.MAX_PACKET, CREDENTIALS_SPACE)
        if received is None:
            return False
        data, ancillary = received
        if data == handshake.READY:
            if self._usage is not None:
                self._usage.start_block()
            return True
        if self.run is not None:
            self._end_run(data)
            return False
        if data != handshake.HELLO:
            raise CellError(
                data[1:].decode(errors="replace") or "the first process of a cell ended early"
            )
        self.pid = sender_pid(ancillary)
        try:
            self._pidfd = PidFd(self.pid)
            self._usage = UsageMeter(self._cgroups, self.name, self.pid)
        except OSError as error:
            raise CellError(f"a cell could not be set up: {describe(error)}") from error
        self.request_main()
        return False

    def request_main(self) -> None:
        """Ask the first process for a new main process. Raise `CellError` if it has ended."""
        try:
            self.pipes = OutputPipes(self._limits.output_bytes)
        except OSError as error:
            raise CellError(f"the pipes of a cell could not be made: {describe(error)}") from error
        try:
            packet = handshake.encode_go(mount.target for mount in self.mounts)
            socket.send_fds(self.socket, [packet], [*self.pipes.writers, *self._mount_fds])
        except OSError as error:
            raise CellError(f"the first process of a cell cannot be reached: {error}") from error
        self._is_pretouched = False

    def pretouch(self) -> None:
        """Let the waiting main process touch its memory until its job comes, once."""
        if not self._is_pretouched:
            self._is_pretouched = True
            with contextlib.suppress(OSError):  # if it has ended, the first process reports that
                self.socket.sendall(handshake.PRETOUCH)

    # a run

    def start_run(self, job: Job, folders: WritableFolders) -> None:
        """Send the waiting main process its job. Raise `OSError` if a file cannot be written."""
        request = job.request
        run = self.run = Run(job.number, job.arrived, request.terms, self._limits, folders)
        run.most_output = request.most_output
        if request.output_bytes is not None and self.pipes is not None:
            self.pipes.limit = OutputLimit(request.output_bytes)
        first_check = run.started + run.storage.check_after(_FIRST_CHECK)
        run.next_check = min(first_check, run.deadline)
        try:
            self.socket.sendall(handshake.encode_job(request.job._replace(code=run.inline_code)))
        except ConnectionError:  # it has ended, which the first process reports
            pass
        except BaseException:
            run.close()
            self.run = None
            raise

    def check_limits(self, now: float) -> None:
        """Stop the run if it exceeds a limit. Kill the first process if that takes too long."""
        run = self.run
        if run is None:
            return
        run.next_check = min(now + _CHECK_INTERVAL, max(run.deadline, now + 0.001))
        if run.stopped_at:
            if now >= run.stopped_at + GRACE:
                self.kill()
                run.next_check = now + GRACE
        elif now >= run.deadline:
            self.stop_run("wall_seconds")
        elif self._prints_too_much():
            self.stop_run("output_bytes")
        elif self._usage and (limit := self._usage.exceeded_limit(run.limits, run.storage)):
            self.stop_run(limit)
        else:
            run.next_check = min(run.next_check, now + run.storage.check_after(_CHECK_INTERVAL))

    def _prints_too_much(self) -> bool:
        if self.run is None or self.run.most_output is None or self.pipes is None:
            return False
        return self.pipes.limit.total_bytes > self.run.most_output

    def stop_run(self, why: str | None) -> None:
        """Ask the first process to kill the block's processes."""
        if self.run is not None and not self.run.stopped_at:
            self.run.why, self.run.stopped_at = why, time.monotonic()
            self.run.next_check = self.run.stopped_at + GRACE
            self._signal(signal.SIGTERM)

    def _end_run(self, data: bytes) -> None:
        self.run_ended = True
        self._report = handshake.decode_report(data)
        # Without a report the first process was killed, and what it knew is lost.
        self.init_lost = self.init_lost or self._report is None

    def ending(self) -> Ending:
        """Return how the run ended."""
        assert self.run is not None
        why, peak, cpu = self.run.why, 0, 0.0
        if self._report is not None:
            peak, cpu = self._report.peak_bytes, self._report.cpu_seconds
        if self._usage:
            cpu = self._usage.cpu_seconds() or cpu
            peak = self._usage.group_peak_bytes() or max(peak, self._usage.peak_bytes)
            if why is None and (
                self._usage.oom_kills()
                or (self._was_killed() and self._usage.shared_oom_kills())
                or self._usage.exceeded_memory_at_end(self._limits, peak)
            ):
                why = "memory_bytes"
        why = why or exceeded_cpu_limit(self.run.limits, cpu)
        why = why or self.run.storage.limit_exceeded_at_end()
        why = why or ("output_bytes" if self._prints_too_much() else None)
        return Ending(
            self._report.status if self._report else None,
            why,
            time.monotonic() - self.run.started,
            cpu,
            peak,
            self.run.queued,
            self.run.code_ctime_ns,
        )

    def _was_killed(self) -> bool:
        """Return True if SIGKILL ended the block, or a program whose status a shell passed on."""
        status = self._report.status if self._report else None
        return status is None or os.waitstatus_to_exitcode(status) in (
            -signal.SIGKILL,
            128 + signal.SIGKILL,
        )

    def prepare_next_run(self) -> None:
        """Close what belonged to the run, and request the next main process. Raise `CellError`."""
        self._close_run()
        self.run_ended = False
        if (
            self.init_lost
            or self.job is not None
            or (self._usage is not None and not self._usage.can_measure_another())
        ):
            self.is_used_up = True
        else:
            self.request_main()

    def _close_run(self) -> None:
        if self.pipes is not None:
            self.pipes.close()
            self.pipes = None
        if self.run is not None:
            self.run.close()
            self.run = None

    # the end

    def close(self) -> None:
        """Close the socket, which ends the first process, and the pipes and files of the run."""
        self._close_run()
        self.socket.close()
        self._peer.close()
        for descriptor in self._mount_fds:
            os.close(descriptor)
        self._mount_fds = []

    def kill(self) -> None:
        """Kill the first process if it does not end."""
        if not self._own_processes and self.pid:
            process_tree.kill_descendants(self.pid)
        self._signal(signal.SIGKILL)  # this also ends its process namespace, if it has one

    def _signal(self, number: int) -> None:
        if self._pidfd is not None:
            self._pidfd.send_signal(number)

    def has_ended(self) -> bool:
        """Return True if the first process has ended."""
        return self._pidfd is None or self._pidfd.has_ended()

    def remove_cgroups(self) -> bool:
        """Remove the control groups and close the pidfd. Return True if the groups are gone."""
        if self._usage is not None and not self._usage.remove_cgroups():
            return False
        if self._pidfd is not None:
            self._pidfd.close()
            self._pidfd = None
        return True
