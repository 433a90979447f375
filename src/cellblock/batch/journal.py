"""Journal: a file with one verdict on each line, from which a batch that was killed resumes."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import stat
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import CellblockError
from .index import ProgramIndex
from .verdicts import Verdict

if sys.platform != "win32":
    import fcntl

_SYNC_SECONDS = 1.0
_MAX_OPENS = 100  # of a file that others replace at the same time


class JournalError(CellblockError, ValueError):
    """A journal cannot be used: it is damaged, in use, or belongs to other programs."""


class Journal:
    """A file of verdicts as JSON lines. One writer at a time has it open, locked by flock(2).

    A verdict is written as soon as it is known: it outlives the process, even if that is killed.
    It is synchronized to the disk within a second, when the next one is written, and at the end: a
    loss of power can cost the last second. A line that was not finished is removed.

    A verdict "not_judged" is not written, so that the next run judges the program.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the file, or create it. Raise `JournalError`, or `OSError`."""
        self.path = Path(path)
        self.index = ProgramIndex()
        self._end = 0  # of the last complete line, in bytes
        self._is_synced, self._synced_at = True, time.monotonic()
        self._file = _open_locked(self.path)
        self._reader = open(self.path, "rb")
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Synchronize the file, and let others write to it."""
        try:
            self.sync()
        finally:
            self._reader.close()
            self._file.close()
            self.index.close()

    def _read(self) -> None:
        """Index the verdicts, and remove an unfinished last line."""
        for number, line in enumerate(self._reader, start=1):
            if not line.endswith(b"\n"):
                self._file.truncate(self._end)
                break
            try:
                verdict = Verdict.from_json(line.decode())
            except ValueError as error:
                raise JournalError(
                    f"Line {number} of {self.path} is no verdict, so nothing is added to this "
                    f"file. Choose another one. {error}"
                ) from error
            if self.index.has_verdict(verdict.id):
                raise JournalError(
                    f"Line {number} of {self.path} is the second verdict on {verdict.id!r:.100}. "
                    "Remove one of them, or choose another file."
                )
            self.index.add_verdict(verdict.id, verdict.digest, self._end)
            self._end += len(line)

    def check_programs(self, programs: ProgramIndex) -> None:
        """Raise `JournalError` if there are verdicts on programs that are not among `programs`."""
        others = self.index.starts_of_others(programs)
        if (first := next(others, None)) is not None:
            count = 1 + sum(1 for _ in others)
            name = Verdict.from_json(self._line_at(first).decode()).id
            raise JournalError(
                f"{self.path} has {count} verdicts on programs of another batch, such as "
                f"{name!r:.100}. Choose another file."
            )

    def find(self, program_id: str, digest: str) -> Verdict | None:
        """Record the next program, and return the verdict on it that an earlier run wrote.

        Raise `ValueError` if an earlier program has the same ID, and `JournalError` if the program
        has another `digest` than the one that was judged.
        """
        written = self.index.add_program(program_id)
        if written is None:
            return None
        if written.digest != digest:
            raise JournalError(
                f"{self.path} has a verdict on {program_id!r:.100}, but the program, its tests or "
                "the limits have changed since. Choose another file, or give the program a new ID."
            )
        return Verdict.from_json(self._line_at(written.start).decode())

    def _line_at(self, start: int) -> bytes:
        self._reader.seek(start)
        return self._reader.readline()

    def write(self, verdict: Verdict) -> None:
        """Append `verdict`. Raise `OSError`, and leave no part of the line."""
        if verdict.outcome == "not_judged":
            return
        line = verdict.to_json().encode() + b"\n"
        try:
            _write_all(self._file, self._end, line)
        except BaseException:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
            raise
        self.index.add_verdict(verdict.id, verdict.digest, self._end)
        self._end += len(line)
        self._is_synced = False

    def must_sync(self) -> bool:
        """Return True if `sync` has something to do, and did nothing for a second."""
        return not self._is_synced and time.monotonic() >= self._synced_at + _SYNC_SECONDS

    def sync(self) -> None:
        """Write to the disk what the system has buffered. It blocks."""
        if not self._is_synced:
            self._is_synced, self._synced_at = True, time.monotonic()
            os.fsync(self._file.fileno())

    def sort(self) -> None:
        """Put the verdicts in the order of the programs, at the end of the batch.

        A new file replaces the old one when it is complete and on the disk.
        """
        if all(first < second for first, second in itertools.pairwise(self.index.starts())):
            return
        path = self.path.resolve()  # a link stays one
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        new = Path(name)
        with contextlib.ExitStack() as cleanup:
            file = cleanup.enter_context(open(descriptor, "wb"))
            cleanup.callback(new.unlink, missing_ok=True)
            new.chmod(path.stat().st_mode & 0o777)
            for start in self.index.starts():
                file.write(self._line_at(start))
            file.flush()
            os.fsync(file.fileno())
            new.replace(path)
        self._is_synced = True


def _write_all(file: io.FileIO, start: int, data: bytes) -> None:
    file.seek(start)
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _open_locked(path: Path) -> io.FileIO:
    """Open the file for reading and writing, with a lock that it keeps until it is closed."""
    for _ in range(_MAX_OPENS):
        file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        try:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise JournalError(f"{path} is not a regular file. Choose another one.")
            _lock(file, path)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BaseException:
            file.close()
            raise
        file.close()  # `Journal.sort` of another process has just replaced it
    raise JournalError(f"{path} is replaced again and again by other processes.")


def _lock(file: io.FileIO, path: Path) -> None:
    if sys.platform == "win32":  # has no flock, and no executors of this machine
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise JournalError(
            f"Another process writes to {path}. Wait for its end, or choose another file."
        ) from error
