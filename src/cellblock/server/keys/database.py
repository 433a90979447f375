"""Open the database of a server: SQLite by default, or any URL that SQLAlchemy accepts."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from ...errors import BackendError
from .tables import Base


def state_folder() -> Path:
    """Return the folder in which a server of this user keeps its state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "cellblock"


def default_database_url() -> str:
    """Return the URL of the SQLite file of this user."""
    return f"sqlite:///{state_folder()}/server.db"


def open_database(url: str, *, must_exist: bool = False) -> Engine:
    """Open the database at `url`, and create the tables that it lacks. Raise `BackendError`.

    A missing SQLite file is created, for its owner only, unless it `must_exist`.
    """
    try:
        parsed = make_url(url)
        if must_exist and parsed.get_backend_name() == "sqlite" and parsed.database:
            _check_exists(Path(parsed.database))
        engine = create_engine(parsed)
        if parsed.get_backend_name() != "sqlite":
            Base.metadata.create_all(engine)
            return engine
        event.listen(engine, "connect", _configure_sqlite)
        with _sqlite_file_locked(parsed):
            Base.metadata.create_all(engine)
        return engine
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise BackendError(
            f"The database URL cannot be used: {error}. "
            "Use a URL such as sqlite:////var/lib/cellblock/server.db."
        ) from error
    except (SQLAlchemyError, OSError) as error:
        raise BackendError(f"The database cannot be opened: {error}") from error


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise BackendError(f"There is no database {path}. `cellblock keys add` creates it.")


@contextlib.contextmanager
def _sqlite_file_locked(url: URL) -> Generator[None]:
    """Create the file if it is missing, and let one process at a time change its tables.

    SQLite does not wait for other processes while it changes to its write-ahead log, so its
    folder is locked. An existing file is not opened here: to close it would remove the locks that
    SQLite has on it in this process (https://www.sqlite.org/howtocorrupt.html, 2.2).
    """
    if not url.database or url.database == ":memory:":
        raise BackendError("A database in memory would lose its keys. Use a file.")
    path = Path(url.database)
    if path.parent == state_folder():
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.parent.is_dir():
        raise BackendError(
            f"The folder {path.parent} of the database does not exist. Create it, or correct the "
            "URL of the database."
        )
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        yield
    finally:
        os.close(folder)


def _configure_sqlite(connection: Any, _record: object) -> None:
    """Let one process write while others read, and wait for locks."""
    for pragma in ("busy_timeout=5000", "journal_mode=WAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
