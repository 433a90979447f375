"""One cell as the server sees it: asked for, ready, running, ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import time
from dataclasses import dataclass
from typing import Any

from . import init, tree
from .meter import Groups, Meter
from .pump import Pump

_CREDENTIALS = struct.Struct("3i")
_FOREVER = float("inf")


class CellFailed(Exception):
    """A cell could not be made; the message says why."""


@dataclass
class Job:
    """One block that waits for a cell, since `arrived`."""

    run: int
    request: dict[str, Any]
    arrived: float

    def never_started(self) -> dict[str, Any]:
        """Give the ending of a job that was cancelled before it got a cell."""
        queued = time.monotonic() - self.arrived
        return {"status": None, "why": "cancelled", "wall": 0.0, "cpu": 0.0, "peak": 0, "queued": queued}


class Cell:
    """A cell's first process, the socket to it, its two output pipes and its measure."""

    def __init__(self, name: str, spec: dict[str, Any], groups: Groups) -> None:
        self.name = name
        self.run = 0
        self.started = 0.0
        self.deadline = _FOREVER
        self.next_look = _FOREVER
        self.stopping = 0.0
        self.ended = False
        self.link, self._theirs = socket.socketpair()
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.pump = Pump(spec["limits"].get("output_bytes"))
        self._limits: dict[str, Any] = spec["limits"]
        self._namespaces = bool(spec["zygote"]["namespaces"])
        self._groups = groups
        self._meter: Meter | None = None
        self._pidfd = -1
        self._report = b""
        self._why: str | None = None
        self._queued = 0.0
        self._wall = 0.0
        self._saved: int = -1
        self._save_left = 0

    def request(self, zygote: socket.socket) -> None:
        """Have the zygote fork it."""
        socket.send_fds(zygote, [b"c"], [self._theirs.fileno(), *self.pump.writers])
        self._theirs.close()

    def read(self) -> bool:
        """Read what its processes say; tell whether it has just become ready. Raises `CellFailed`."""
        data, ancillary, _, _ = self.link.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
        if self.run:
            self._report += data
            if not data or len(self._report) >= init.REPORT.size:
                self.ended = True
                self._wall = time.monotonic() - self.started
            return False
        if data == init.HELLO:
            self._admit(ancillary)
            return False
        if data == init.READY:
            return True
        raise CellFailed(data[1:].decode(errors="replace") or "a cell's first process ended early")

    def _admit(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        pid = _CREDENTIALS.unpack(ancillary[0][2][: _CREDENTIALS.size])[0]
        try:
            self._pidfd = os.pidfd_open(pid)
            self._meter = Meter(self._groups, self.name, pid)
        except OSError as error:
            raise CellFailed(f"a cell could not be admitted: {error}") from error
        self.link.sendall(init.GO)

    def start(self, job: Job) -> None:
        """Hand it its job."""
        self.run = job.run
        self.started = time.monotonic()
        self._queued = self.started - job.arrived
        wall = job.request.get("wall_seconds")
        self.deadline = self.started + wall if wall else _FOREVER
        with contextlib.suppress(OSError):  # if it has died, the end of its socket will say so
            self.link.sendall(init.encode_job(job.request))

    def open_file(self, job: Job) -> None:
        """Open the file that the whole output was asked for in, if any. Raises `OSError`."""
        if job.request.get("save"):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._saved = os.open(job.request["save"], flags, 0o644)
            self._save_left = self._limits.get("written_bytes") or (1 << 62)

    def save(self, data: bytes) -> None:
        """Append output to the file that the whole of it was asked for in."""
        if self._saved < 0:
            return
        part = data[: self._save_left]
        self._save_left -= len(part)
        try:
            os.write(self._saved, part)
        except OSError:  # a full disk must not end the server; the file is short then
            self._save_left = 0

    def exceeded(self) -> str | None:
        """Name the limit that it is over, if any."""
        if self._meter is None:
            return None
        if self._meter.oom_kills():
            return "memory_bytes"
        sample = self._meter.sample()
        for name, used in (
            ("cpu_seconds", sample.cpu_seconds),
            ("written_bytes", sample.written_bytes),
            ("memory_bytes", sample.memory_bytes),
        ):
            if self._limits.get(name) and used > self._limits[name]:
                return name
        return None

    def stop(self, why: str | None) -> None:
        """Have its first process end all of it."""
        if not self.stopping:
            self._why, self.stopping = why, time.monotonic()
            self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it from outside, when its first process does not."""
        if not self._namespaces and self._meter is not None:
            tree.kill_below(self._meter.pid)
        self._signal(signal.SIGKILL)  # in a process namespace everything in it goes as well

    @property
    def pid(self) -> int:
        """The process id of its first process; 0 while that is not known."""
        return self._meter.pid if self._meter else 0

    @property
    def lost(self) -> bool:
        """Whether it ended without a report: its first process was killed."""
        return self.ended and len(self._report) < init.REPORT.size

    def _signal(self, number: int) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def gone(self) -> bool:
        """Tell whether its first process has ended."""
        if self._pidfd < 0:
            return True
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return bool(poller.poll(0))

    def ending(self) -> dict[str, Any]:
        """Give how it ended, for the wire."""
        report = None
        if len(self._report) >= init.REPORT.size:
            report = init.Report(*init.REPORT.unpack(self._report[: init.REPORT.size]))
        why, peak = self._why, report.peak_bytes if report else 0
        if self._meter:
            peak = self._meter.group_peak_bytes() or max(peak, self._meter.peak_bytes)
            if why is None and self._meter.oom_kills():
                why = "memory_bytes"
        if why is None and report and self._cpu_limit_hit(report):
            why = "cpu_seconds"
        return {
            "status": report.status if report else None,
            "why": why,
            "wall": self._wall,
            "cpu": report.cpu_seconds if report else 0.0,
            "peak": peak,
            "queued": self._queued,
        }

    def _cpu_limit_hit(self, report: init.Report) -> bool:
        limit = self._limits.get("cpu_seconds")
        return bool(limit and os.WIFSIGNALED(report.status) and report.cpu_seconds >= limit)

    def close(self) -> None:
        """Let go of its pipes, its socket and its output file."""
        self.pump.close()
        self.link.close()
        if self._saved >= 0:
            os.close(self._saved)
            self._saved = -1

    def remove(self) -> bool:
        """Remove its control groups and let go of its process; tell whether all is gone."""
        if self._meter is not None and not self._meter.remove():
            return False
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        return True
