"""Measure what a cell uses and whether it exceeds a limit.

The figures come from its control groups, or from /proc where there are none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from ..linux import process_tree
from ..linux.held_file import HeldFile
from ..spec import CellLimits
from .cgroups import CellCgroups
from .storage import StorageMeter

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
# More memory than a block's process has at its start. What its group holds beyond that are files
# that earlier blocks wrote.
_FRESH_CELL_BYTES = 16 << 20


class UsageMeter:
    """Measure the current block of one cell, whose first process is `pid`.

    peak_bytes    the highest sum of memory that `sample` has found
    living_bytes  what `total_written_bytes` has found last, of processes that live
    """

    def __init__(self, cgroups: CellCgroups, name: str, pid: int) -> None:
        self.pid = pid
        self._can_reset = True
        # What was used before the block, parsed from the texts below when it is first needed.
        self._baseline: UsageSample | None = None
        self._baseline_texts: list[tuple[bytes, bytes]] = []
        self._cgroups = cgroups
        self._kills_before, self._time_before = 0, 0.0
        self._shared_before = self._total_shared_kills()
        self._folders = [f"{parent}/{name}" for parent in cgroups.parents]
        self.peak_bytes = self._leftover_bytes = 0
        self.living_bytes = self._forgotten_bytes = self._others_bytes = 0
        self._stat, self._io = (HeldFile(f"/proc/{pid}/{name}") for name in ("stat", "io"))
        self._tracked = self._stat, self._io
        self._peak = self._file(cgroups.peak, os.O_RDWR)
        self._oom, self._time = self._file(cgroups.oom), self._file(cgroups.time)
        try:
            self._create_groups()
        except BaseException:
            self.remove_cgroups()
            raise

    def _create_groups(self) -> None:
        for folder in self._folders:
            os.mkdir(folder)
        for index, file, text in self._cgroups.settings:
            with contextlib.suppress(FileNotFoundError):
                _write(f"{self._folders[index]}/{file}", text)
        self.add_process(self.pid)

    def _file(self, file: tuple[int, str] | None, flags: int = os.O_RDONLY) -> HeldFile:
        """Return a file of the group, which is read for every block. It may not exist."""
        return HeldFile("" if file is None else f"{self._folders[file[0]]}/{file[1]}", flags)

    def start_block(self) -> None:
        """Start measuring a block in a cell without other processes."""
        # The first process has reaped all earlier blocks. The new main process has used next to
        # nothing.
        self._baseline, self.peak_bytes = None, 0
        self._baseline_texts = [(_text(self._stat), _text(self._io))]
        self._record_counts()
        if self._cgroups.peak is not None:
            try:
                self._peak.write(b"0")
                held = self._group_peak()
                self._leftover_bytes = held if held > _FRESH_CELL_BYTES else 0
            except OSError:  # this kernel cannot reset it: each block needs a new cell
                self._can_reset = False

    def start_session_block(self, *, alone: bool) -> None:
        """Start measuring a block in a cell whose processes live on.

        `alone`: the only such process is that of `track_process`.
        """
        self.peak_bytes = 0
        self._record_counts()
        # A kernel that cannot reset it reports the peak of all blocks.
        with contextlib.suppress(OSError):
            self._peak.write(b"0")
        if alone:
            pairs = (self._stat, self._io), self._tracked
            self._baseline = None
            self._baseline_texts = [(_text(stat), _text(io)) for stat, io in pairs]
        else:
            self._baseline = _sample(self._pids(), memory=False)

    def _record_counts(self) -> None:
        self._kills_before = self._total_oom_kills()
        self._shared_before = self._total_shared_kills()
        self._time_before = self.total_cpu_seconds() or 0.0

    def _baseline_sample(self) -> UsageSample:
        if self._baseline is None:
            self._baseline = UsageSample()
            for stat, io in self._baseline_texts:
                with contextlib.suppress(ValueError, IndexError):
                    self._baseline.add_times(stat.decode(errors="replace"))
                    self._baseline.add_writes(io.decode())
        return self._baseline

    def track_process(self, pid: int) -> None:
        """Count what process `pid`, which runs several blocks, has used before each of them."""
        for file in self._tracked:
            file.release()
        self._tracked = HeldFile(f"/proc/{pid}/stat"), HeldFile(f"/proc/{pid}/io")

    def _pids(self) -> list[int]:
        return [self.pid, *process_tree.descendants(self.pid)]

    def add_process(self, pid: int) -> None:
        """Move a process that was forked in another cell to this cell's control groups."""
        for folder in self._folders:
            _write(f"{folder}/cgroup.procs", str(pid))

    def allow_forks(self, *, allowed: bool) -> None:
        """Let the cell's processes fork, up to their limit, or not, if a control group can."""
        for index, file, text in self._cgroups.settings:
            if file == "pids.max":
                with contextlib.suppress(OSError):
                    _write(f"{self._folders[index]}/{file}", text if allowed else "0")

    def oom_kills(self) -> int:
        """Return how many of the block's processes the OOM killer has killed."""
        return self._total_oom_kills() - self._kills_before

    def _total_oom_kills(self) -> int:
        try:
            return int(self._oom.read().split(b"oom_kill ", 1)[1].split()[0])
        except (OSError, ValueError, IndexError):
            return 0

    def shared_oom_kills(self) -> int:
        """Return the number of OOM kills in all cells since the block started.

        The killed process may have been one of another cell.
        """
        return self._total_shared_kills() - self._shared_before

    def _total_shared_kills(self) -> int:
        if self._cgroups.shared is not None:
            with contextlib.suppress(OSError, ValueError, IndexError):
                return int(_read(self._cgroups.shared).split("oom_kill ", 1)[1].split()[0])
        return 0

    def group_peak_bytes(self) -> int:
        """Return the peak memory that the control group has counted, 0 without one."""
        # Files of earlier blocks do not count, unless the kernel dropped them to make room.
        left = self._leftover_bytes
        if left:
            left = min(left, self._stat_bytes("file", "cache"))  # cgroup v2, v1
        return max(0, self._group_peak() - left)

    def exceeded_memory_at_end(self, limits: CellLimits, peak: int) -> bool:
        """Return True if a block that has ended held too much memory before it could be checked.

        `peak` is the most memory that one of its processes had, with what it shares with the first
        process. With control groups the kernel has checked already.
        """
        limit = limits.memory_bytes
        if not limit or peak <= limit or self._cgroups.peak is not None:
            return False
        with contextlib.suppress(OSError, ValueError, IndexError):
            shared = int(_read(f"/proc/{self.pid}/statm").split()[1]) * _PAGE
            return peak - shared > limit
        return False

    def can_measure_another(self) -> bool:
        """Return True if the cell can run another block, whose use can be told from this one's.

        The kernel must be able to reset the counters. And files in memory (tmpfs), which it cannot
        drop, would leave less of the memory limit to the next block.
        """
        if not self._can_reset or self._group_peak() <= _FRESH_CELL_BYTES:
            return self._can_reset
        return self._stat_bytes("shmem") <= _FRESH_CELL_BYTES

    def _stat_bytes(self, *names: str) -> int:
        """Return the first of the counters `names` that the memory control group has, or 0."""
        if self._cgroups.peak is not None:
            path = f"{self._folders[self._cgroups.peak[0]]}/memory.stat"
            with contextlib.suppress(OSError, ValueError):
                counts = dict(line.split() for line in _read(path).splitlines())
                return next((int(counts[name]) for name in names if name in counts), 0)
        return 0

    def _group_peak(self) -> int:
        try:
            return int(self._peak.read(64))
        except (OSError, ValueError):
            return 0

    def cpu_seconds(self) -> float | None:
        """Return the block's CPU time, including that of processes that were never waited for.

        Return None without a control group that counts it.
        """
        now = self.total_cpu_seconds()
        return None if now is None else now - self._time_before

    def total_cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes that the cell has had, or None as `cpu_seconds`."""
        text = _text(self._time)
        if text.startswith(b"usage_usec "):
            return int(text.split(None, 2)[1]) / 1e6
        return int(text) / 1e9 if text else None

    def session_cpu_seconds(self, *, alone: bool) -> float:
        """Return the CPU time of a block in a session, if no control group counts it.

        `alone` as in `start_session_block`: processes that have ended and been reaped still count.
        """
        if not alone:
            return self.sample().cpu_seconds
        total = UsageSample()
        for stat in (self._stat, self._tracked[0]):
            with contextlib.suppress(ValueError, IndexError):
                total.add_times(_text(stat).decode(errors="replace"))
        return max(0.0, total.cpu_seconds - self._baseline_sample().cpu_seconds)

    def sample(self) -> UsageSample:
        """Return what the block has used so far: at least 0, also if earlier processes end."""
        total = _sample(self._pids(), memory=self._cgroups.peak is None)
        before = self._baseline_sample()
        self.peak_bytes = max(self.peak_bytes, total.memory_bytes)
        cpu = self.cpu_seconds()
        return UsageSample(
            total.memory_bytes,
            max(0.0, total.cpu_seconds - before.cpu_seconds) if cpu is None else cpu,
            max(0, total.written_bytes - before.written_bytes),
        )

    def total_written_bytes(self, pids: Iterable[int]) -> int:
        """Return what all processes have written since the first one has started.

        `pids` are those that live. What others have written is in the figures of the one that has
        waited for them, or is known from the last call.
        """
        found = UsageSample()
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                found.add_writes(_read(f"/proc/{pid}/io"))
        # The kernel forgets those that nobody has waited for.
        self._forgotten_bytes += max(0, self.living_bytes - found.written_bytes)
        self.living_bytes = found.written_bytes
        return max(0, self.living_bytes + self._forgotten_bytes - self._others_bytes)

    def own_pids(self, others: set[int]) -> list[int]:
        """Return its processes without the `others` and those below them."""
        excluded = {below for pid in others for below in (pid, *process_tree.descendants(pid))}
        return [pid for pid in self._pids() if pid not in excluded]

    def add_others_bytes(self, count: int) -> None:
        """Do not count what processes of another cell have written that end here."""
        self._others_bytes += count

    def exceeded_limit(self, limits: CellLimits, storage: StorageMeter) -> str | None:
        """Return the name of the limit that the block exceeds, or None."""
        if self.oom_kills():
            return "memory_bytes"
        sample = self.sample()
        return self._exceeded_by(sample, limits, storage) or exceeded_cpu_limit(
            limits, sample.cpu_seconds
        )

    def exceeded_memory(self, limits: CellLimits) -> str | None:
        """Return "memory_bytes" if the processes have more memory than that, or None.

        With control groups, the kernel ends the one that needs more memory than there is.
        """
        if self._cgroups.peak is not None or not limits.memory_bytes:
            return None
        return "memory_bytes" if self.sample().memory_bytes > limits.memory_bytes else None

    def _exceeded_by(
        self, sample: UsageSample, limits: CellLimits, storage: StorageMeter
    ) -> str | None:
        if limit := storage.exceeded_limit(sample.written_bytes, self._pids()):
            return limit
        if limits.memory_bytes and sample.memory_bytes > limits.memory_bytes:
            return "memory_bytes"
        return None

    def remove_cgroups(self) -> bool:
        """Remove the control groups. Return True if they are gone: the kernel may need a moment."""
        for file in (self._peak, self._oom, self._stat, self._io, self._time, *self._tracked):
            file.release()
        for folder in list(self._folders):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                return False
            self._folders.remove(folder)
        return True


class UsageSample:
    """Sums over the living processes of a cell, whose figures include those of reaped children."""

    def __init__(
        self, memory_bytes: int = 0, cpu_seconds: float = 0.0, written_bytes: int = 0
    ) -> None:
        self.memory_bytes, self.cpu_seconds = memory_bytes, cpu_seconds
        self.written_bytes = written_bytes

    def add(self, pid: int, *, memory: bool) -> None:
        """Add process `pid`, with its memory only if asked: that is expensive to find out."""
        self.add_times(_read(f"/proc/{pid}/stat"))
        if memory:
            self.memory_bytes += _proportional_bytes(pid)
        with contextlib.suppress(PermissionError):
            self.add_writes(_read(f"/proc/{pid}/io"))

    def add_times(self, stat: str) -> None:
        """Add the CPU time in the text of /proc/PID/stat, that of reaped children included."""
        # The name, in brackets, may contain spaces and brackets: count from the last bracket.
        fields = stat.rpartition(")")[2].split()
        self.cpu_seconds += sum(int(fields[index]) for index in (11, 12, 13, 14)) / _TICK

    def add_writes(self, io: str) -> None:
        """Add the bytes written in the text of /proc/PID/io."""
        self.written_bytes += int(io.split("write_bytes: ", 1)[1].split()[0])


def exceeded_cpu_limit(limits: CellLimits, used: float) -> str | None:
    """Return "cpu_seconds" if a block that has ended used more than that limit, or None.

    The block may have ended before `UsageMeter.exceeded_limit` was called.
    """
    return "cpu_seconds" if limits.cpu_seconds and used > limits.cpu_seconds else None


def _text(file: HeldFile) -> bytes:
    """Return the content of a file, empty if it cannot be read.

    Its process has ended, or the kernel does not have it; to read `io` needs permission to trace
    the process.
    """
    try:
        return file.read()
    except OSError:
        return b""


def _sample(pids: list[int], *, memory: bool) -> UsageSample:
    total = UsageSample()
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total.add(pid, memory=memory)
    return total


def _proportional_bytes(pid: int) -> int:
    # PSS divides shared pages among their processes: plain sums count a forked heap many times.
    try:
        text = _read(f"/proc/{pid}/smaps_rollup")
    except FileNotFoundError:  # gVisor does not have it
        return int(_read(f"/proc/{pid}/statm").split()[1]) * _PAGE
    for line in text.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: str) -> str:
    with open(path, errors="replace") as file:  # a process name may be any bytes
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
