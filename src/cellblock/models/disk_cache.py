"""DiskCache: a cache in a folder. Values are kept as JSON in one SQLite file.

The folder may be a stranger's, so nothing in it is unpickled, as `diskcache` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Generator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_FILE = "answers.sqlite"  # not cache.db of `diskcache`
_SECONDS_TO_WAIT = 60  # for other processes that write
_TABLE = "CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, value TEXT NOT NULL)"


class DiskCache:
    """Keep JSON values in `folder`. Several threads and processes can use it at the same time.

    The folder is created when the first value is set. Raise `OSError` if it cannot be used.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value under `key`, or `default`."""
        if not (self.folder / _FILE).exists():
            return default
        with self._open() as database:
            row = database.execute("SELECT value FROM answers WHERE key = ?", (key,)).fetchone()
        try:
            return default if row is None else json.loads(row[0])
        except (TypeError, ValueError):  # not written by `set`
            return default

    def set(self, key: str, value: Any) -> None:
        """Keep `value` under `key`. Raise `TypeError` if JSON cannot express it."""
        text = json.dumps(value)
        with self._open() as database:
            database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, text))

    def close(self) -> None:
        """Do nothing: the file is open only while it is read or written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self.folder / _FILE, timeout=_SECONDS_TO_WAIT)
            with contextlib.closing(database), database:
                database.execute(_TABLE)
                yield database
        except (OSError, sqlite3.Error) as error:
            raise OSError(
                f"The cache folder {self.folder} cannot be used: {error}. "
                "Choose another folder. (cache_seed=None in an llm_config needs none.)"
            ) from error
