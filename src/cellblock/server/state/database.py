"""Open the database of a server: an SQLite file by default, or PostgreSQL."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from ...errors import BackendError, WorkspaceError
from . import schema

_CONNECT_SECONDS = 5
_SILENCE_MS = 10_000  # after which a connection to a server that does not answer is lost
_DISK_FULL = (("SQLITE_FULL", None), (None, "53100"))  # the names of SQLite and PostgreSQL
_EXAMPLES = (
    "Use a URL such as sqlite:////var/lib/cellblock/server.db or "
    "postgresql://user:password@host/database."
)


def state_folder() -> Path:
    """Return the folder in which a server of this user keeps its state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "cellblock"


def default_database_url() -> str:
    """Return the URL of the SQLite file of this user."""
    return f"sqlite:///{state_folder()}/server.db"


def open_database(url: str, *, must_exist: bool = False) -> Engine:
    """Open the database at `url`, and apply the revisions that it lacks. Raise `BackendError`.

    A missing SQLite file is created, for its owner only, unless it `must_exist`. No error names the
    password of the URL.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        open_engine = _open_sqlite(parsed, must_exist=must_exist)
    else:
        open_engine = _open_postgresql(parsed)
    try:
        with open_engine as engine:
            _upgrade(engine)
            return engine
    except (SQLAlchemyError, OSError) as error:
        raise BackendError(f"The database cannot be opened: {_describe(error)}") from error


def database_error(error: SQLAlchemyError) -> BackendError | WorkspaceError:
    """Return the error to raise for a failed statement, without its values."""
    original = error.orig if isinstance(error, DBAPIError) else None
    codes = getattr(original, "sqlite_errorname", None), getattr(original, "sqlstate", None)
    if codes in _DISK_FULL:
        return WorkspaceError("No space left on the disk of the server's database.")
    return BackendError(f"The server's database failed: {_describe(error)}")


def _describe(error: Exception) -> str:
    """Return what the driver says, in one line."""
    original = error.orig if isinstance(error, DBAPIError) else None
    return " ".join(str(original or error).split())


def _upgrade(engine: Engine) -> None:
    try:
        schema.upgrade(engine)
    except BaseException:
        engine.dispose()
        raise


def _parse(url: str) -> URL:
    # Errors of the parser may name parts of the URL, and so the password.
    try:
        parsed = make_url(url)
        kind = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        raise BackendError(f"The URL of the database is not valid. {_EXAMPLES}") from None
    if "@" in f"{parsed.host}{parsed.database}" and parsed.password is not None:
        raise BackendError(
            "The URL of the database has more than one '@'. Write those of the user name and the "
            "password as %40."
        )
    if kind not in ("sqlite", "postgresql", "postgres"):
        raise BackendError(f"A database of the kind {kind!r} cannot be used. {_EXAMPLES}")
    is_plain = kind != "sqlite" and "+" not in parsed.drivername
    return parsed.set(drivername="postgresql+psycopg") if is_plain else parsed


@contextlib.contextmanager
def _open_postgresql(url: URL) -> Generator[Engine]:
    try:
        engine = create_engine(
            url, hide_parameters=True, pool_pre_ping=True, connect_args=_connect_args(url)
        )
    except ImportError as error:
        raise BackendError(
            f"PostgreSQL needs a driver that is not installed: {error}. "
            "Install it: pip install 'cellblock[server,postgres]'."
        ) from error
    except SQLAlchemyError as error:  # no such driver
        raise BackendError(f"The database URL cannot be used: {error}. {_EXAMPLES}") from error
    yield engine


def _connect_args(url: URL) -> dict[str, int | str]:
    """Return what libpq needs to give up a server that does not answer, unless the URL says it."""
    defaults: dict[str, int | str] = {
        "application_name": "cellblock",
        "connect_timeout": _CONNECT_SECONDS,
        "keepalives_idle": _SILENCE_MS // 1000,
        "tcp_user_timeout": _SILENCE_MS,
    }
    return {name: value for name, value in defaults.items() if name not in url.query}


@contextlib.contextmanager
def _open_sqlite(url: URL, *, must_exist: bool) -> Generator[Engine]:
    if must_exist and url.database and not Path(url.database).exists():
        raise BackendError(
            f"There is no database {url.database}. `cellblock keys add` creates it. "
            "If the server has another one, name it in CELLBLOCK_DATABASE."
        )
    engine = create_engine(url, hide_parameters=True)
    event.listen(engine, "connect", _configure_sqlite)
    with _sqlite_file_locked(url):
        yield engine


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
        if not os.access(path, os.R_OK | os.W_OK):
            raise BackendError(
                f"The database {path} cannot be read and written. "
                "It must belong to the user of the server."
            )
        yield
    finally:
        os.close(folder)


def _configure_sqlite(connection: Any, _record: object) -> None:
    """Let one process write while others read, and wait for locks."""
    for pragma in ("busy_timeout=5000", "journal_mode=WAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
