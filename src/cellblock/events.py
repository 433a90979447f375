"""What happens while blocks run: a closed union of events. A result is the fold of its events.

For the paths in events see `CodeResult`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["ok", "error", "timeout", "cancelled", "out_of_memory", "killed"]
Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class Usage:
    """What one block used.

    wall_seconds        time from the start of the program to the end of its last process
    cpu_seconds         user and system time of all its processes
    peak_memory_bytes   largest amount of memory in use at one time; 0 if the backend cannot tell
    queue_seconds       time between the request and the start; not part of `wall_seconds`
    """

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    queue_seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.wall_seconds + other.wall_seconds,
            self.cpu_seconds + other.cpu_seconds,
            max(self.peak_memory_bytes, other.peak_memory_bytes),
            self.queue_seconds + other.queue_seconds,
        )


@dataclass(frozen=True)
class Started:
    """Block number `block` (from 0) started. `code_file` is the path of its file, or None."""

    block: int
    language: str
    code_file: str | None = None


@dataclass(frozen=True)
class Output:
    """The block wrote `text`."""

    block: int
    stream: Stream
    text: str


@dataclass(frozen=True)
class OutputTruncated:
    """Output over the limit was discarded at this point: so many bytes of each stream."""

    block: int
    stdout_bytes: int
    stderr_bytes: int


@dataclass(frozen=True)
class Display:
    """The block displayed rich output.

    `data` is a MIME bundle: it maps each type to its content. `files` contains the path of the file
    that holds it, if it is an image or a page.
    """

    block: int
    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileCreated:
    """The block created or changed a file. `path` is relative to the work folder."""

    block: int
    path: str
    size_bytes: int


@dataclass(frozen=True)
class Ended:
    """The block ended and none of its processes is left.

    limit              the field of `Limits` that ended the block; None if no limit did
    message            text that is appended to the result's output, such as "\\nTimeout"
    session_restored   True if the block ended its session's process and the variables were restored
                       to their values before the block
    notice             what happened to the session, if it had to be restored or restarted; or that
                       it cannot be at present
    lost_blocks        number of earlier blocks whose variables are lost
    """

    block: int
    exit_code: int
    outcome: Outcome
    limit: str | None = None
    message: str = ""
    usage: Usage = Usage()
    session_restored: bool = False
    notice: str = ""
    lost_blocks: int = 0


@dataclass(frozen=True)
class PullProgress:
    """Block number `block` waits while its image is pulled.

    `bytes_total` counts only the layers whose size the registry has announced so far.
    """

    image: str
    layers_done: int
    layers_total: int
    bytes_done: int
    bytes_total: int
    block: int = 0

    def __str__(self) -> str:
        layers = f"{self.layers_done} of {self.layers_total} layers"
        size = f"{self.bytes_done / 1e6:.1f} of {self.bytes_total / 1e6:.1f} MB"
        return f"{self.image}: {layers}, {size}"


Event = Started | Output | OutputTruncated | Display | FileCreated | Ended | PullProgress
