"""Limits: how much one block may use. One value object, the same for every executor."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
_LEAST_PROCESSORS = 0.01  # the kernel counts it in milliseconds of each tenth of a second
_MOST = 1 << 62  # what the kernel's interfaces can hold


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bound what one block and all its processes may use. ``None`` means: no limit of this kind.

    memory_bytes     memory of the whole process tree, temporary files included
    processes        processes and threads of the tree at one time
    open_files       open descriptors of one process
    cpu_seconds      CPU time of the whole tree
    processors       processors that the whole tree may keep busy at one time, 1.5 for one and a half; needs control groups,
                     and starting fails where none can be made. In a container it holds for all blocks together.
    wall_seconds     time from the block's start; the executor's ``timeout`` holds as well, the smaller one wins
    file_bytes       size of one file
    written_bytes    what the whole tree writes to disk
    tmp_bytes        size of the block's own /tmp and of its own /dev/shm, each
    checkpoints      explicit checkpoints of one live session at one time
    output_bytes     output kept: the first and the last half of it, the cut between them marked
    """

    memory_bytes: int | None = None
    processes: int | None = None
    open_files: int | None = None
    cpu_seconds: float | None = None
    processors: float | None = None
    wall_seconds: float | None = None
    file_bytes: int | None = None
    written_bytes: int | None = None
    tmp_bytes: int | None = None
    checkpoints: int | None = None
    output_bytes: int | None = MIB

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(
                    f"Limits.{field.name} must be a number above 0 or None, not {value!r}."
                )
            if value > _MOST:
                raise ValueError(
                    f"Limits.{field.name} is too large: {value!r}. None means no limit."
                )
            if field.name == "processors" and value < _LEAST_PROCESSORS:
                raise ValueError(
                    f"Limits.processors must be at least {_LEAST_PROCESSORS}, not {value!r}."
                )
            if field.name.endswith(
                ("_bytes", "processes", "open_files", "checkpoints")
            ) and not isinstance(value, int):
                raise ValueError(f"Limits.{field.name} must be a whole number, not {value!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Give the limits as JSON values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Limits:
        """Make limits from `to_dict`'s values. Unknown names raise `ValueError`."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"Unknown limits: {', '.join(unknown)}.")
        return cls(**values)


# Without a sandbox a limit that nobody asked for would only surprise: output alone is bounded.
LOCAL_LIMITS = Limits()
SANDBOX_LIMITS = Limits(
    memory_bytes=2 * GIB,
    processes=512,
    open_files=4096,
    file_bytes=2 * GIB,
    written_bytes=8 * GIB,
    tmp_bytes=1 * GIB,
    checkpoints=16,
)
