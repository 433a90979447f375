"""Log what models were asked and answered, as AutoGen 0.2's `runtime_logging` does."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, cast

_error_log = logging.getLogger(__name__)
_TABLE = """
    CREATE TABLE IF NOT EXISTS chat_completions(
        id INTEGER PRIMARY KEY, invocation_id TEXT, client_id INTEGER, wrapper_id INTEGER,
        session_id TEXT, source_name TEXT, request TEXT, response TEXT, is_cached INTEGER,
        cost REAL, start_time DATETIME, end_time DATETIME)
"""


@dataclass(frozen=True)
class LoggedCompletion:
    """One request to a model: a row of the table `chat_completions`, or a line of the file."""

    invocation_id: str
    client_id: int
    wrapper_id: int
    session_id: str
    source_name: str | None
    request: str
    response: str
    is_cached: int
    cost: float | None
    start_time: str
    end_time: str


class CompletionLog(Protocol):
    """Where completions are logged."""

    def write(self, completion: LoggedCompletion) -> None:
        """Keep `completion`."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class SqliteLog:
    """A SQLite database."""

    def __init__(self, name: str) -> None:
        self.connection = sqlite3.connect(name, check_same_thread=False)
        self._lock = threading.Lock()
        with self.connection:
            self.connection.execute(_TABLE)

    def write(self, completion: LoggedCompletion) -> None:
        """Add a row."""
        row = asdict(completion)
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        with self._lock, self.connection:
            self.connection.execute(
                f"INSERT INTO chat_completions ({names}) VALUES ({marks})", list(row.values())
            )

    def close(self) -> None:
        """Close the database."""
        self.connection.close()


class FileLog:
    """A file with one JSON object a line."""

    def __init__(self, name: str) -> None:
        self._file = Path(name).open("a", encoding="utf-8")

    def write(self, completion: LoggedCompletion) -> None:
        """Add a line."""
        self._file.write(json.dumps(asdict(completion)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass(frozen=True)
class _Session:
    id: str
    log: CompletionLog


_session: _Session | None = None


def start(
    logger: CompletionLog | None = None,
    logger_type: Literal["sqlite", "file"] = "sqlite",
    config: Mapping[str, Any] | None = None,
) -> str:
    """Log all requests of all chats from now on, and return the ID of the session.

    logger        where to; None: as `logger_type` says
    logger_type   "sqlite": the table `chat_completions` of the database `config["dbname"]`, by
                  default "logs.db"; "file": lines of JSON in `config["filename"]`, by default
                  "runtime.log"

    Raise `ValueError` for another type.
    """
    global _session
    settings = config or {}
    if logger is None:
        if logger_type == "sqlite":
            logger = SqliteLog(settings.get("dbname", "logs.db"))
        elif logger_type == "file":
            logger = FileLog(settings.get("filename", "runtime.log"))
        else:
            raise ValueError(f"logger_type must be 'sqlite' or 'file', not {logger_type!r}.")
    stop()
    _session = _Session(str(uuid.uuid4()), logger)
    return _session.id


def stop() -> None:
    """Stop logging."""
    global _session
    session, _session = _session, None
    if session is not None:
        session.log.close()


def logging_enabled() -> bool:
    """Return True between `start` and `stop`."""
    return _session is not None


def get_connection() -> sqlite3.Connection | None:
    """Return the connection to the database; None if there is none."""
    return _session.log.connection if _session and isinstance(_session.log, SqliteLog) else None


def now() -> str:
    """Return the time for a log, in UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def log_chat_completion(
    *,
    client: object,
    wrapper: object,
    agent: object,
    request: Mapping[str, Any],
    response: object,
    is_cached: bool,
    start_time: str,
) -> None:
    """Log a request and its answer, if logging is on. A failure to do so is only logged."""
    session = _session
    if session is None:
        return
    completion = LoggedCompletion(
        str(uuid.uuid4()),
        id(client),
        id(wrapper),
        session.id,
        agent if isinstance(agent, str) else getattr(agent, "name", None),
        json.dumps(request, default=_plain),
        json.dumps(response, default=_plain),
        int(is_cached),
        getattr(response, "cost", None),
        start_time,
        now(),
    )
    try:
        session.log.write(completion)
    except (sqlite3.Error, OSError, ValueError) as error:  # ValueError: a closed file
        _error_log.error("A completion could not be logged: %s", error)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if attributes := cast("dict[str, Any]", getattr(value, "__dict__", {})):
        return {name: each for name, each in attributes.items() if not callable(each)}
    return f"<<non-serializable: {type(value).__qualname__}>>"
