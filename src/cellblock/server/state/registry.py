"""The sessions of all servers of a database: which server has which, and how many a key has."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from sqlalchemy import Connection, Engine, delete, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError

from ...errors import BackendError
from ..owners import Owner
from ..refusals import SessionElsewhere
from .database import database_error
from .records import OtherSession, ServerIdentity
from .tables import KeyRow, ServerRow, SessionRow

# A server that has not written for this time has ended without saying so.
DEAD_SECONDS = 60.0


@dataclass(frozen=True)
class NewSessionRow:
    """A session to add: its ID, the identifier that the client has chosen, and when it ends if it
    is not used.
    """

    id: str
    identifier: str
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class SessionUse:
    """When a session was used, and when it ends if it is not used again."""

    used_at: float
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class SessionEnd:
    """When and why a session has ended."""

    ended_at: float
    ending: str


class NameClaim:
    """The name of a server, which no other process can claim until this one ends or releases it.

    SQLite: a lock on one byte of a file beside the database. PostgreSQL: a lock of a connection.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        digest = hashlib.sha256(f"cellblock server {name}".encode()).digest()
        self._number = int.from_bytes(digest[:8]) >> 2
        self._file: int | None = None
        self._connection: Connection | None = None

    def hold(self, engine: Engine) -> None:
        """Claim the name, also again if the connection was lost. Raise `BackendError`."""
        try:
            is_free = (
                self._lock_byte(f"{engine.url.database}-servers")
                if engine.dialect.name == "sqlite"
                else self._lock_in_connection(engine)
            )
        except SQLAlchemyError as error:
            raise database_error(error) from error
        if not is_free:
            self.release()
            raise BackendError(
                f"Another server with the name {self._name!r} uses this database. Give this one "
                "another --name, or stop the other one first."
            )

    def _lock_byte(self, path: str) -> bool:
        if self._file is None:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._number)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _lock_in_connection(self, engine: Engine) -> bool:
        if self._connection is None or not _is_alive(self._connection):
            self.release()
            self._connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            # So that the lock of a machine that was switched off does not stay for hours.
            for name, value in (("idle", 10), ("interval", 10), ("count", 3)):
                self._connection.execute(text(f"SET tcp_keepalives_{name} = {value}"))
            lock = text("SELECT pg_try_advisory_lock(:number)")
            return bool(self._connection.scalar(lock, {"number": self._number}))
        return True

    def release(self) -> None:
        """Let others have the name."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._connection is not None:
            self._connection.invalidate()  # the pool would keep the lock
            self._connection.close()
            self._connection = None


def _is_alive(connection: Connection) -> bool:
    try:
        return connection.scalar(text("SELECT 1")) == 1
    except SQLAlchemyError:
        return False


def reserve(
    engine: Engine, server: ServerIdentity, owner: Owner, session: NewSessionRow, own_count: int
) -> None:
    """Add a session of `server`, which has `own_count` other ones of the owner.

    Raise `TooManySessions` if all servers together have as many as the key may have,
    `SessionElsewhere` if another one has a session with this identifier, and `BackendError` or
    `WorkspaceError` if the database fails.
    """
    now = time.time()
    try:
        with engine.begin() as connection:
            _lock(connection, owner.id)
            others = _select_others(connection, server.id, owner.id)
            if same := next((o for o in others if o.identifier == session.identifier), None):
                raise elsewhere(same)
            owner.check_session_quota(own_count + len(others))
            connection.execute(
                insert(SessionRow).values(
                    id=session.id,
                    identifier=session.identifier,
                    key_id=owner.id,
                    server_id=server.id,
                    server=server.name,
                    created_at=now,
                    used_at=now,
                    expires_at=session.expires_at,
                )
            )
    except SQLAlchemyError as error:
        raise database_error(error) from error


def read_others(engine: Engine, server_id: str, owner: Owner) -> list[OtherSession]:
    """Return the sessions of an owner that other servers have, oldest first.

    Raise `BackendError`.
    """
    try:
        with engine.connect() as connection:
            return _select_others(connection, server_id, owner.id)
    except SQLAlchemyError as error:
        raise database_error(error) from error


def elsewhere(session: OtherSession) -> SessionElsewhere:
    """Return the refusal of a request for a session of another server."""
    return SessionElsewhere(
        f"The session {session.identifier!r} is on the server {session.server!r}. Send its "
        "requests there."
    )


def write_sessions(
    connection: Connection, uses: Mapping[str, SessionUse], ends: Mapping[str, SessionEnd]
) -> None:
    """Write when sessions were used and have ended, by their ID."""
    for session_id, change in sorted({**uses, **ends}.items()):
        connection.execute(
            update(SessionRow).where(SessionRow.id == session_id).values(**vars(change))
        )


def revive(connection: Connection, session_ids: Iterable[str]) -> None:
    """Take back that sessions were lost: their server was only taken for dead."""
    for session_id in sorted(session_ids):
        own = SessionRow.id == session_id
        connection.execute(update(SessionRow).where(own).values(ended_at=None, ending=None))


def end_lost(connection: Connection, server: ServerIdentity) -> None:
    """End the sessions of servers that are dead, or that `server` has replaced."""
    is_dead = ServerRow.seen_at < time.time() - DEAD_SECONDS
    is_replaced = (ServerRow.name == server.name) & (ServerRow.started_at < server.started_at)
    connection.execute(delete(ServerRow).where(ServerRow.id != server.id, is_dead | is_replaced))
    lost = SessionRow.ended_at.is_(None) & SessionRow.server_id.not_in(select(ServerRow.id))
    connection.execute(update(SessionRow).where(lost).values(ended_at=time.time(), ending="lost"))


def _lock(connection: Connection, key_id: str) -> None:
    """Let one server at a time add a session of a key."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.execute(select(KeyRow.id).where(KeyRow.id == key_id).with_for_update())


def _select_others(connection: Connection, server_id: str, key_id: str) -> list[OtherSession]:
    names = [field.name for field in fields(OtherSession)]
    query = (
        select(*(SessionRow.__table__.columns[name] for name in names))
        .join(ServerRow, ServerRow.id == SessionRow.server_id)
        .where(
            SessionRow.key_id == key_id,
            SessionRow.ended_at.is_(None),
            SessionRow.server_id != server_id,
            ServerRow.seen_at >= time.time() - DEAD_SECONDS,
        )
        .order_by(SessionRow.created_at)
    )
    return [OtherSession(**row) for row in connection.execute(query).mappings()]
