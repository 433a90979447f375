"""What happens while blocks run, as a closed union of values. A result is these, folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["ok", "error", "timeout", "cancelled", "out_of_memory", "killed"]
Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class Usage:
    """What one block used.

    wall_seconds        from the start of its program to the end of its last process
    cpu_seconds         user and system time of all its processes
    peak_memory_bytes   most memory held at one time, as far as the place can tell; 0 when unknown
    queue_seconds       time it waited before it was started; not part of wall_seconds
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
    """Block number `block` (from 0) begins. `code_file` is its file, when it has one."""

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
    """Output beyond the cap was left out here: so many bytes of each stream."""

    block: int
    stdout_bytes: int
    stderr_bytes: int


@dataclass(frozen=True)
class Display:
    """The block showed something rich: a MIME bundle, type to content. `files`: where parts of it were saved."""

    block: int
    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileCreated:
    """The block made or changed a file. `path` is relative to the work folder."""

    block: int
    path: str
    size_bytes: int


@dataclass(frozen=True)
class Ended:
    """The block is over and none of its processes is left.

    `limit` names the field of `Limits` that ended it. `message` is what the result's output says of the end. Where the live
    session behind the block could not simply go on, `session_restored` tells whether it has the variables of before the
    block again, and `notice` says what became of it.
    """

    block: int
    exit_code: int
    outcome: Outcome
    limit: str | None = None
    message: str = ""
    usage: Usage = Usage()
    session_restored: bool = False
    notice: str = ""


@dataclass(frozen=True)
class PullProgress:
    """Block number `block` waits for its image to be fetched: layers, and bytes as far as their number is known yet."""

    image: str
    layers_done: int
    layers: int
    bytes_done: int
    bytes_known: int
    block: int = 0

    def __str__(self) -> str:
        done, known = self.bytes_done / 1e6, self.bytes_known / 1e6
        return f"{self.image}: {self.layers_done} of {self.layers} layers, {done:.1f} of {known:.1f} MB"


Event = Started | Output | OutputTruncated | Display | FileCreated | Ended | PullProgress
