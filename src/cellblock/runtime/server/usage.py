"""What a cell uses and whether that is too much: read from its control groups where there are some, else from /proc."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from ..linux import process_tree
from .cgroups import Groups

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
# More than a block's process holds before it begins. What a group holds beyond that are files that blocks before it wrote.
_FRESH = 16 << 20


class Meter:
    """The measure of one cell, whose first process is `pid`: what its present block uses."""

    def __init__(self, groups: Groups, name: str, pid: int) -> None:
        self.pid = pid
        self.can_begin_again = True
        self._before: Sample | None = (
            None  # what was used before the block; read from these texts when it is asked for
        )
        self._texts: list[tuple[bytes, bytes]] = []
        self._peak = self._oom = self._stat = self._io = self._time = -1
        self._groups = groups
        self._kills_before, self._shared_before, self._time_before = 0, self._shared_kills(), 0.0
        self._folders = [f"{parent}/{name}" for parent in groups.parents]
        self.peak_bytes = self._left_bytes = 0
        for folder in self._folders:
            os.mkdir(folder)
        for index, file, text in groups.settings:
            with contextlib.suppress(FileNotFoundError):
                _write(f"{self._folders[index]}/{file}", text)
        for folder in self._folders:
            _write(f"{folder}/cgroup.procs", str(pid))
        self._followed = (-1, -1)
        self._stat, self._io = (_open_proc(pid, name) for name in ("stat", "io"))
        self._peak = self._open(groups.peak, os.O_RDWR)
        self._oom = self._open(groups.oom, os.O_RDONLY)
        self._time = self._open(groups.time, os.O_RDONLY)

    def _open(self, file: tuple[int, str] | None, flags: int) -> int:
        """Keep a file of the group open, since it is read for every block; -1: there is none."""
        if file is None:
            return -1
        try:
            return os.open(f"{self._folders[file[0]]}/{file[1]}", flags | os.O_CLOEXEC)
        except OSError:
            return -1

    def begin(self) -> None:
        """Count from here: a new block begins."""
        # All blocks before this one are in what its first process has reaped; the new main process has done next to nothing.
        self._before, self._texts, self.peak_bytes = None, [(_text(self._stat), _text(self._io))], 0
        self._note_counts()
        if self._groups.peak is not None:
            try:
                os.pwrite(self._peak, b"0", 0)
                held = self._group_peak()
                self._left_bytes = held if held > _FRESH else 0
            except OSError:  # a kernel that cannot set it back: every block needs a cell of its own
                self.can_begin_again = False

    def begin_among_the_living(self, *, alone: bool) -> None:
        """Count from here, in a cell whose processes live on. `alone`: none but the one that `follow` told of does."""
        self.peak_bytes = 0
        self._note_counts()
        with contextlib.suppress(
            OSError
        ):  # a kernel that cannot set it back gives the most there ever was
            os.pwrite(self._peak, b"0", 0)
        if alone:
            pairs = (self._stat, self._io), self._followed
            self._before, self._texts = None, [(_text(stat), _text(io)) for stat, io in pairs]
        else:
            self._before = _sample(self._pids(), memory=False)

    def _note_counts(self) -> None:
        self._kills_before, self._shared_before = self._oom_kills(), self._shared_kills()
        self._time_before = self._group_time() or 0.0

    def _used_before(self) -> Sample:
        if self._before is None:
            self._before = Sample()
            for stat, io in self._texts:
                with contextlib.suppress(ValueError, IndexError):
                    self._before.add_times(stat.decode(errors="replace"))
                    self._before.add_writes(io.decode())
        return self._before

    def follow(self, pid: int) -> None:
        """Look at process `pid` whenever a block begins, since it does not begin with it."""
        self._close(*self._followed)
        self._followed = _open_proc(pid, "stat"), _open_proc(pid, "io")

    def _pids(self) -> list[int]:
        return [self.pid, *process_tree.descendants(self.pid)]

    def admit(self, pid: int) -> None:
        """Take in a process that was forked in another cell."""
        for folder in self._folders:
            _write(f"{folder}/cgroup.procs", str(pid))

    def oom_kills(self) -> int:
        """Count the block's processes that the kernel killed for want of memory."""
        return self._oom_kills() - self._kills_before

    def _oom_kills(self) -> int:
        try:
            return int(os.pread(self._oom, 1024, 0).split(b"oom_kill ", 1)[1].split()[0])
        except (OSError, ValueError, IndexError):
            return 0

    def shared_oom_kills(self) -> int:
        """Count the kernel's kills for want of memory among all cells since the block began; one may have been another's."""
        return self._shared_kills() - self._shared_before

    def _shared_kills(self) -> int:
        if self._groups.shared is not None:
            with contextlib.suppress(OSError, ValueError, IndexError):
                return int(_read(self._groups.shared).split("oom_kill ", 1)[1].split()[0])
        return 0

    def group_peak_bytes(self) -> int:
        """Give the most memory that the control group has held for the block; 0 without one."""
        left = (
            min(self._left_bytes, self._files_bytes()) if self._left_bytes else 0
        )  # what gave way to the block was used by it
        return max(0, self._group_peak() - left)

    def _files_bytes(self) -> int:
        """Give how much of files the control group holds."""
        if self._groups.peak is not None:
            with contextlib.suppress(OSError, ValueError, LookupError):
                counts = dict(
                    line.split()
                    for line in _read(
                        f"{self._folders[self._groups.peak[0]]}/memory.stat"
                    ).splitlines()
                )
                return int(counts.get("file") or counts["cache"])  # by version
        return 0

    def _group_peak(self) -> int:
        try:
            return int(os.pread(self._peak, 64, 0))
        except (OSError, ValueError):
            return 0

    def cpu_seconds(self) -> float | None:
        """Give the CPU time of the block, also of processes that nobody waited for; `None` without a group that counts it."""
        now = self._group_time()
        return None if now is None else now - self._time_before

    def _group_time(self) -> float | None:
        text = _text(self._time)
        if text.startswith(b"usage_usec "):
            return int(text.split(None, 2)[1]) / 1e6
        return int(text) / 1e9 if text else None

    def sample(self) -> Sample:
        """Look at what the block has used by now."""
        total, before = _sample(self._pids(), memory=self._groups.peak is None), self._used_before()
        self.peak_bytes = max(self.peak_bytes, total.memory_bytes)
        cpu = self.cpu_seconds()
        return Sample(
            total.memory_bytes,
            total.cpu_seconds - before.cpu_seconds if cpu is None else cpu,
            total.written_bytes - before.written_bytes,
        )

    def exceeded(self, limits: dict[str, Any]) -> str | None:
        """Name the limit that the block is over, if any."""
        if self.oom_kills():
            return "memory_bytes"
        sample = self.sample()
        for name, used in (
            ("cpu_seconds", sample.cpu_seconds),
            ("written_bytes", sample.written_bytes),
            ("memory_bytes", sample.memory_bytes),
        ):
            if limits.get(name) and used > limits[name]:
                return name
        return None

    def remove(self) -> bool:
        """Remove the control groups; tell whether they are gone (the kernel may need a moment)."""
        self._close(self._peak, self._oom, self._stat, self._io, self._time, *self._followed)
        self._peak = self._oom = self._stat = self._io = self._time = -1
        self._followed = (-1, -1)
        for folder in list(self._folders):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                return False
            self._folders.remove(folder)
        return True

    def _close(self, *descriptors: int) -> None:
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)


class Sample:
    """Sums over the living processes of a cell; the time and the writes of reaped ones are in their parents'."""

    def __init__(
        self, memory_bytes: int = 0, cpu_seconds: float = 0.0, written_bytes: int = 0
    ) -> None:
        self.memory_bytes, self.cpu_seconds, self.written_bytes = (
            memory_bytes,
            cpu_seconds,
            written_bytes,
        )

    def add(self, pid: int, *, memory: bool) -> None:
        """Add process `pid`; its memory only where asked, since that is dear to find out."""
        self.add_times(_read(f"/proc/{pid}/stat"))
        if memory:
            self.memory_bytes += _proportional_bytes(pid)
        with contextlib.suppress(PermissionError):
            self.add_writes(_read(f"/proc/{pid}/io"))

    def add_times(self, stat: str) -> None:
        """Add the CPU time in the text of a /proc/PID/stat, that of reaped children included."""
        # The name, in brackets, may hold blanks and brackets itself: count from the last one.
        fields = stat.rpartition(")")[2].split()
        self.cpu_seconds += sum(int(fields[index]) for index in (11, 12, 13, 14)) / _TICK

    def add_writes(self, io: str) -> None:
        """Add the bytes written in the text of a /proc/PID/io."""
        self.written_bytes += int(io.split("write_bytes: ", 1)[1].split()[0])


def over_cpu(limits: dict[str, Any], used: float) -> str | None:
    """Name the limit of CPU seconds if a block that has ended used more: whether somebody saw that in time is no matter."""
    limit = limits.get("cpu_seconds")
    return "cpu_seconds" if limit and used > limit else None


def _text(descriptor: int) -> bytes:
    """Give what is in an open file of /proc; nothing, where there is none or its process has ended."""
    try:
        return os.pread(descriptor, 1024, 0) if descriptor >= 0 else b""
    except OSError:
        return b""


def _open_proc(pid: int, name: str) -> int:
    try:
        return os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # the io of a process that may not be looked into
        return -1


def _sample(pids: list[int], *, memory: bool) -> Sample:
    total = Sample()
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total.add(pid, memory=memory)
    return total


def _proportional_bytes(pid: int) -> int:
    # Shared pages are divided among those that share them: plain sums would count a forked heap many times.
    try:
        text = _read(f"/proc/{pid}/smaps_rollup")
    except FileNotFoundError:  # as everywhere in gVisor, which does not know who shares what
        return int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    with open(path, errors="replace") as file:  # a process may call itself by any bytes
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
