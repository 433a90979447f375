"""What a command did, and what is known of a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..events import Usage
from ..runtime.box_orders import FileEntry

FileKind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True)
class CommandResult:
    """What a command did.

    exit_code   its exit code; 128+N if signal N ended it, 127 if there is no such program, 124 at
                the time limit
    stdout      what it wrote to standard output
    stderr      what it wrote to standard error; empty with `merge_stderr`
    truncated   it wrote more than `max_output_bytes` to a stream, whose beginning is kept
    timed_out   its time limit has ended it
    limit       the limit of the box that has ended it, such as "memory_bytes"; `stderr` says it too
    usage       what it used
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    timed_out: bool = False
    usage: Usage = Usage()
    limit: str | None = None

    @property
    def stdout_text(self) -> str:
        """`stdout` as UTF-8, with U+FFFD for what is not."""
        return self.stdout.decode(errors="replace")

    @property
    def stderr_text(self) -> str:
        """`stderr` as UTF-8, with U+FFFD for what is not."""
        return self.stderr.decode(errors="replace")


@dataclass(frozen=True)
class FileStatus:
    """A file or folder in a box.

    name       the last part of its path
    path       absolute
    kind       "file", "folder", "link" or "other", after links if they were followed
    is_link    True if the path names a link
    size       in bytes
    mode       its permissions, such as 0o644
    modified   seconds since 1970
    """

    name: str
    path: str
    kind: FileKind
    is_link: bool
    size: int
    mode: int
    modified: float

    @property
    def is_folder(self) -> bool:
        """True for a folder."""
        return self.kind == "folder"

    @classmethod
    def of(cls, entry: FileEntry) -> FileStatus:
        """Return what the box has sent."""
        kind = entry.kind if entry.kind in ("file", "folder", "link") else "other"
        return cls(
            entry.name,
            entry.path,
            kind,
            entry.is_link,
            entry.size,
            entry.mode,
            entry.modified,
        )
