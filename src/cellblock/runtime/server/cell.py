"""A cell as the server sees it, and the run that it is given: asked for, ready, running, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from .. import protocol
from ..cell import init
from ..linux import files, process_tree
from ..linux.credentials import ROOM, ask_for_sender, sender
from ..linux.pidfd import Hold
from .cgroups import Groups
from .pipes import Pump
from .usage import Meter, over_cpu

_FOREVER = float("inf")
_SHORT = (
    init.PACKET // 2
)  # bytes of code that fit into the packet of a job, so that its process need not read the file


class CellFailed(Exception):
    """A cell could not be made, or died before it had anything to do; the message says why."""


class Job(NamedTuple):
    """One block that waits for a cell, since `arrived`; `write` is how the file of its code is written."""

    run: int
    request: dict[str, Any]
    arrived: float
    write: Callable[[str, bytes], int] = files.write_at

    def never_started(self) -> dict[str, Any]:
        """Give the ending of a job that was cancelled before it got a cell."""
        queued = time.monotonic() - self.arrived
        return {
            "status": None,
            "why": "cancelled",
            "wall": 0.0,
            "cpu": 0.0,
            "peak": 0,
            "queued": queued,
        }

    def unwritten(self, error: OSError) -> bytes:
        """Make the frame which says that a file of it cannot be made."""
        return protocol.encode_json(
            protocol.FAILED, self.run, {"error": error.strerror, "file": error.filename}
        )


class Run:
    """One block in a cell: when it must end, where all of its output goes, and why it was ended."""

    def __init__(self, job: Job, limits: dict[str, Any]) -> None:
        """Make the files that `job` asks for: that of its code, and one for its output. Raises `OSError`."""
        self.number = job.run
        self.started = time.monotonic()
        self.queued = self.started - job.arrived + job.request.get("waited", 0.0)
        wall = job.request.get("wall_seconds")
        self.deadline = self.started + wall if wall else _FOREVER
        self.next_look = _FOREVER
        self.stopping = 0.0
        self.why: str | None = None
        self.since: int | None = None
        if job.request.get(
            "write"
        ):  # only now: the files of all that wait would make each new one dearer
            path, text = job.request.pop("write")
            code = text.encode(errors="replace")
            self.since = job.write(path, code)
            if job.request.get("script") and len(code) <= _SHORT:
                job.request["code"] = code
        self._file = files.open_at(job.request["save"]) if job.request.get("save") else -1
        self._room = limits.get("written_bytes") or (1 << 62)

    def save(self, data: bytes) -> None:
        """Append output to the file that the whole of it was asked for in, if any."""
        if self._file < 0:
            return
        part = data[: self._room]
        self._room -= len(part)
        try:
            os.write(self._file, part)
        except OSError:  # a full disk must not end the server; the file is short then
            self._room = 0

    def close(self) -> None:
        """Let go of the output file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Cell:
    """A cell's first process, the socket to it, and its measure; with a block in it: its run and its output pipes."""

    def __init__(
        self,
        name: str,
        spec: dict[str, Any],
        groups: Groups,
        own: tuple[Job, list[str], list[int]] | None = None,
    ) -> None:
        """Make one for any blocks, or, with `own`, for one job alone, with mounts on the targets named."""
        self.name = name
        self.job, self._targets, mounts = own or (None, list[str](), list[int]())
        self._mounts = [os.dup(mount) for mount in mounts]
        self.run: Run | None = None
        self.pump: Pump | None = None
        self.pid = 0
        self.ended = False
        self.lost = False
        self.used_up = False
        self._has_rehearsed = False
        # Packets, so that what its processes say cannot run together.
        self.link, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ask_for_sender(self.link)
        self._limits: dict[str, Any] = spec["limits"]
        self._own_processes = bool(spec["zygote"]["own_processes"])
        self._groups = groups
        self._meter: Meter | None = None
        self._hold: Hold | None = None
        self._report: init.Report | None = None

    # before a run

    def request(self, zygote: socket.socket) -> None:
        """Have the zygote fork its first process."""
        socket.send_fds(zygote, [init.CELL], [self._theirs.fileno()])
        self._theirs.close()

    def read(self) -> bool:
        """Read what its processes say; tell whether it has just become ready. Raises `CellFailed`."""
        try:
            data, ancillary, _, _ = self.link.recvmsg(init.PACKET, ROOM)
        except ConnectionError:
            data, ancillary = b"", []
        if data == init.READY:
            if self._meter is not None:
                self._meter.begin()
            return True
        if self.run is not None:
            self._end(data)
            return False
        if data != init.HELLO:
            raise CellFailed(
                data[1:].decode(errors="replace") or "a cell's first process ended early"
            )
        self.pid = sender(ancillary)
        try:
            self._hold = Hold(self.pid)
            self._meter = Meter(self._groups, self.name, self.pid)
        except OSError as error:
            raise CellFailed(f"a cell could not be admitted: {error}") from error
        self.prepare()
        return False

    def prepare(self) -> None:
        """Ask for a fresh main process. Raises `CellFailed`."""
        self.pump = Pump(self._limits.get("output_bytes"))
        try:
            socket.send_fds(
                self.link, [init.go(self._targets)], [*self.pump.writers, *self._mounts]
            )
        except OSError as error:
            raise CellFailed(f"a cell's first process is gone: {error}") from error
        self._has_rehearsed = False

    def rehearse(self) -> None:
        """Have the waiting main process use the time until its job comes, if it has not yet."""
        if not self._has_rehearsed:
            self._has_rehearsed = True
            with contextlib.suppress(OSError):  # if it has died, its first process will say so
                self.link.sendall(init.REHEARSE)

    # a run

    def start(self, job: Job) -> None:
        """Hand the waiting main process its job. Raises `OSError` when one of its files cannot be made."""
        self.run = Run(job, self._limits)
        with contextlib.suppress(OSError):  # if it has died, its first process will say so
            self.link.sendall(init.encode_job(job.request))

    def exceeded(self) -> str | None:
        """Name the limit that it is over, if any."""
        return None if self._meter is None else self._meter.exceeded(self._limits)

    def stop(self, why: str | None) -> None:
        """Have its first process end the block."""
        if self.run is not None and not self.run.stopping:
            self.run.why, self.run.stopping = why, time.monotonic()
            self._signal(signal.SIGTERM)

    def _end(self, data: bytes) -> None:
        self.ended = True
        if len(data) == init.REPORT.size:
            self._report = init.Report(*init.REPORT.unpack(data))
        else:  # its first process was killed, and with it all that it could tell
            self._report, self.lost = None, True

    def ending(self) -> dict[str, Any]:
        """Give how the run ended, for the wire."""
        assert self.run is not None
        why, peak, cpu = self.run.why, 0, 0.0
        if self._report is not None:
            peak, cpu = self._report.peak_bytes, self._report.cpu_seconds
        if self._meter:
            cpu = self._meter.cpu_seconds() or cpu
            peak = self._meter.group_peak_bytes() or max(peak, self._meter.peak_bytes)
            if why is None and (
                self._meter.oom_kills() or (self._was_killed() and self._meter.shared_oom_kills())
            ):
                why = "memory_bytes"
        why = why or over_cpu(self._limits, cpu)
        return {
            "status": self._report.status if self._report else None,
            "why": why,
            "wall": time.monotonic() - self.run.started,
            "cpu": cpu,
            "peak": peak,
            "queued": self.run.queued,
            "since": self.run.since,
        }

    def _was_killed(self) -> bool:
        """Tell whether SIGKILL ended it, or a program that it waited for, as shells tell it."""
        status = self._report.status if self._report else None
        return status is None or os.waitstatus_to_exitcode(status) in (
            -signal.SIGKILL,
            128 + signal.SIGKILL,
        )

    def clear(self) -> None:
        """After a run: let go of all that belonged to it, and get ready for the next. Raises `CellFailed`."""
        self._drop_run()
        self.ended = False
        if (
            self.lost
            or self.job is not None
            or (self._meter is not None and not self._meter.can_begin_again)
        ):
            self.used_up = True
        else:
            self.prepare()

    def _drop_run(self) -> None:
        if self.pump is not None:
            self.pump.close()
            self.pump = None
        if self.run is not None:
            self.run.close()
            self.run = None

    # the end

    def close(self) -> None:
        """Let go of it: its first process ends when it finds the socket closed."""
        self._drop_run()
        self.link.close()
        for mount in self._mounts:
            os.close(mount)
        self._mounts = []

    def kill(self) -> None:
        """End it from outside, when its first process does not."""
        if not self._own_processes and self.pid:
            process_tree.kill_below(self.pid)
        self._signal(signal.SIGKILL)  # in a process namespace everything in it goes as well

    def _signal(self, number: int) -> None:
        if self._hold is not None:
            self._hold.send(number)

    def gone(self) -> bool:
        """Tell whether its first process has ended."""
        return self._hold is None or self._hold.has_ended()

    def remove(self) -> bool:
        """Remove its control groups and let go of its process; tell whether all is gone."""
        if self._meter is not None and not self._meter.remove():
            return False
        if self._hold is not None:
            self._hold.close()
            self._hold = None
        return True
