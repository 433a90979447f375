"""ProgramIndex: which programs of a batch were seen, and which verdicts the journal holds."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

_TABLE = """
    CREATE TABLE programs (
        id BLOB PRIMARY KEY, position INTEGER, digest TEXT, start INTEGER
    ) WITHOUT ROWID
"""
_CACHE_KIB = 2048  # the rest of the table is in a temporary file


@dataclass(frozen=True)
class WrittenVerdict:
    """A verdict in the journal: the digest of what was judged, and where its line starts."""

    digest: str
    start: int


class ProgramIndex:
    """A table that holds any number of programs in little memory.

    SQLite keeps it in a temporary file without a name, which vanishes with the process.
    """

    def __init__(self) -> None:
        # Used by one task at a time; `run_many` may be closed on another thread.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._database.execute(_TABLE)
        self._count = 0

    def close(self) -> None:
        """Remove the table."""
        self._database.close()

    def add_program(self, program_id: str) -> WrittenVerdict | None:
        """Record the next program, and return its verdict of an earlier run.

        Raise `ValueError` if an earlier program has the same ID.
        """
        key, position = _key(program_id), self._count
        self._count += 1
        found = self._database.execute(
            "SELECT position, digest, start FROM programs WHERE id = ?", (key,)
        ).fetchone()
        if found is not None and found[0] is not None:
            raise ValueError(
                f"Programs {found[0] + 1} and {position + 1} have the same ID, "
                f"{program_id!r:.100}. Give each program its own."
            )
        self._database.execute(
            "INSERT INTO programs (id, position) VALUES (?, ?) "
            "ON CONFLICT (id) DO UPDATE SET position = excluded.position",
            (key, position),
        )
        return None if found is None else WrittenVerdict(found[1], found[2])

    def has_verdict(self, program_id: str) -> bool:
        """Return True if there is a verdict on a program."""
        query = "SELECT 1 FROM programs WHERE id = ? AND start IS NOT NULL"
        return self._database.execute(query, (_key(program_id),)).fetchone() is not None

    def starts_of_others(self, programs: ProgramIndex) -> Iterator[int]:
        """Yield where the verdicts on programs are that are not among `programs`."""
        query = "SELECT id, start FROM programs WHERE start IS NOT NULL"
        for key, start in self._database.execute(query):
            known = "SELECT 1 FROM programs WHERE id = ? AND position IS NOT NULL"
            if programs._database.execute(known, (key,)).fetchone() is None:
                yield start

    def add_verdict(self, program_id: str, digest: str, start: int) -> None:
        """Record where the verdict on a program is."""
        self._database.execute(
            "INSERT INTO programs (id, digest, start) VALUES (?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET digest = excluded.digest, start = excluded.start",
            (_key(program_id), digest, start),
        )

    def starts(self) -> Iterator[int]:
        """Yield where the verdicts are, in the order of the programs; unseen programs last."""
        for (start,) in self._database.execute(
            "SELECT start FROM programs WHERE start IS NOT NULL "
            "ORDER BY position IS NULL, position, start"
        ):
            yield start


def _key(program_id: str) -> bytes:
    return hashlib.blake2b(program_id.encode(errors="surrogatepass"), digest_size=16).digest()
