"""Limits: how much one block may use. Every executor takes the same value object."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
_MAX_VALUE = 1 << 62  # fits into every kernel interface
# The part of the memory that files in memory may hold: half. The kernel cannot free them by ending
# programs, so without room beside them it would end everything. And that their entries may hold.
_FILES_SHARE, _ENTRIES_SHARE = 2, 8
_BYTES_PER_ENTRY = 1024  # of kernel memory, for a file without contents
_MAX_ENTRIES = 200_000
MIN_MEMORY_BYTES = 8 * MIB
MAX_SECONDS = 1e9  # 30 years
# The smallest values that work, and why.
_MINIMUMS = {
    "memory_bytes": (MIN_MEMORY_BYTES, " (8 MiB), which Python needs to start"),
    "processes": (2, ", because the process that starts the block counts"),
    "processors": (0.01, ""),  # cgroup v2 takes at least 1 ms of each period of 100 ms
}


class _NotNamed(enum.Enum):
    NOT_NAMED = enum.auto()

    def __repr__(self) -> str:
        return "<default of the executor>"


# Executors replace it by their default before anything reads the limit.
_NOT_NAMED: Final[Any] = _NotNamed.NOT_NAMED


@dataclass(frozen=True, kw_only=True, repr=False)
class Limits:
    """How much one block, with all its processes, may use.

    A limit that is not named keeps the executor's default. `None` means no limit;
    `Limits.unlimited()` removes all of them.

    memory_bytes     memory of the process tree, including files in memory. These may hold half of
                     it: then the folder is full (ENOSPC)
    processes        processes and threads of the tree at one time
    open_files       open file descriptors of one process
    cpu_seconds      CPU time of the process tree
    processors       CPUs that the process tree may use at one time, for example 1.5. Needs control
                     groups: without them the executor does not start. In a container, all blocks
                     share this limit.
    wall_seconds     time from the start of the block. The executor's `timeout` also applies; the
                     smaller one wins.
    file_bytes       size of one file
    written_bytes    bytes that the process tree writes to disk. On a filesystem in memory (tmpfs):
                     that its files hold
    files            files and folders that a block may make in its work folder, and in its other
                     folders that outlive it
    tmp_bytes        size of the temporary folders together: /tmp, /dev/shm and others in memory.
                     At most half of `memory_bytes`
    checkpoints      explicit checkpoints of one live session at one time
    output_bytes     output to keep: the first half and the last half of this size. A marker between
                     them gives the number of bytes that were discarded.
    """

    memory_bytes: int | None = _NOT_NAMED
    processes: int | None = _NOT_NAMED
    open_files: int | None = _NOT_NAMED
    cpu_seconds: float | None = _NOT_NAMED
    processors: float | None = _NOT_NAMED
    wall_seconds: float | None = _NOT_NAMED
    file_bytes: int | None = _NOT_NAMED
    written_bytes: int | None = _NOT_NAMED
    files: int | None = _NOT_NAMED
    tmp_bytes: int | None = _NOT_NAMED
    checkpoints: int | None = _NOT_NAMED
    output_bytes: int | None = _NOT_NAMED

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None or value is _NOT_NAMED:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(
                    f"Limits.{field.name} must be a number above 0 or None, not {value!r}."
                )
            if value > _MAX_VALUE:
                raise ValueError(
                    f"Limits.{field.name} is too large: {value!r}. None means no limit."
                )
            if field.name.endswith(
                ("_bytes", "processes", "files", "checkpoints")
            ) and not isinstance(value, int):
                raise ValueError(f"Limits.{field.name} must be a whole number, not {value!r}.")
            minimum, reason = _MINIMUMS.get(field.name, (0, ""))
            if value < minimum:
                raise ValueError(
                    f"Limits.{field.name} must be at least {minimum}{reason}, not {value!r}."
                )

    @classmethod
    def unlimited(cls) -> Limits:
        """Return limits that are all None."""
        return cls(**dict.fromkeys((field.name for field in fields(cls)), None))

    def with_defaults(self, defaults: Limits) -> Limits:
        """Return these limits, with those of `defaults` where none is named."""
        return replace(defaults, **self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the limits that are named as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not _NOT_NAMED}

    @property
    def memory_file_bytes(self) -> int | None:
        """What files in memory may hold together. None: no limit."""
        most = None if self.memory_bytes is None else self.memory_bytes // _FILES_SHARE
        return min((value for value in (self.tmp_bytes, most) if value is not None), default=None)

    @property
    def memory_files(self) -> int:
        """How many files in memory there may be."""
        if self.memory_bytes is None:
            return _MAX_ENTRIES
        return min(_MAX_ENTRIES, self.memory_bytes // _ENTRIES_SHARE // _BYTES_PER_ENTRY)

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())
        return f"{type(self).__name__}({named})"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Limits:
        """Return the limits that `to_dict` returned as `values`.

        Raise `ValueError` for unknown names.
        """
        # `values` comes from JSON, where its type is not checked.
        if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - JSON
            raise ValueError(f"Limits must be a mapping of names to numbers, not {values!r}.")
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"Unknown limits: {', '.join(unknown)}.")
        return cls(**values)


# Without a sandbox, only the output is limited by default.
LOCAL_LIMITS = replace(Limits.unlimited(), output_bytes=MIB)
SANDBOX_LIMITS = replace(
    LOCAL_LIMITS,
    memory_bytes=2 * GIB,
    processes=512,
    open_files=4096,
    file_bytes=2 * GIB,
    written_bytes=8 * GIB,
    files=100_000,
    tmp_bytes=1 * GIB,
    checkpoints=16,
)
# A box lives longer than a block, and its limits are for all that it does.
BOX_LIMITS = replace(SANDBOX_LIMITS, written_bytes=64 * GIB)
