"""FileFingerprint: detect that a file has changed without reading it."""

from __future__ import annotations

import os
from typing import NamedTuple


class FileFingerprint(NamedTuple):
    """The state of a file. It differs after every change of the file.

    `changed` is the change time in nanoseconds, which the owner of the file cannot set.
    """

    inode: int
    changed: int
    size: int


def fingerprint(status: os.stat_result) -> FileFingerprint:
    """Return the fingerprint of the file with this status."""
    return FileFingerprint(status.st_ino, status.st_ctime_ns, status.st_size)
