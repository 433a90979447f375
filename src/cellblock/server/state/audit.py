"""Read the audit log, and remove what is too old."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Engine, delete, func, or_, select
from sqlalchemy.exc import SQLAlchemyError

from .database import database_error
from .records import AuditRecord, ServerIdentity, storable
from .registry import end_lost
from .tables import AuditRow, SessionRow

_ROWS = 500  # that are read at once
_SEARCHED = (
    AuditRow.key_id,
    AuditRow.key_name,
    AuditRow.server,
    AuditRow.door,
    AuditRow.session,
    AuditRow.run,
    AuditRow.language,
    AuditRow.outcome,
    AuditRow.target,
    AuditRow.by_key_id,
)
_COLUMNS = [column for column in AuditRow.__table__.columns if column.name != "id"]


@dataclass(frozen=True, kw_only=True)
class AuditFilter:
    """Which records to read. Times are seconds since 1970. None means all.

    owner_id       the ID of the only key whose records may be read
    since, until   when they began: at or after `since`, before `until`
    key            the ID or the name of a key, also of one that has added or revoked others
    session        the identifier of a session, also of one that a fork has made
    text           part of the name or ID of a key, of a session, run, language, door, server or
                   outcome, in any case
    """

    owner_id: str | None = None
    since: float | None = None
    until: float | None = None
    key: str | None = None
    session: str | None = None
    action: str | None = None
    text: str | None = None

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        """Yield what all chosen rows have."""
        if self.owner_id is not None:
            yield AuditRow.key_id == self.owner_id
        if self.since is not None:
            yield AuditRow.time >= self.since
        if self.until is not None:
            yield AuditRow.time < self.until
        for text, columns in (
            (self.key, (AuditRow.key_id, AuditRow.key_name, AuditRow.by_key_id)),
            (self.session, (AuditRow.session, AuditRow.target)),
            (self.action, (AuditRow.action,)),
        ):
            if text is not None:
                yield or_(*(column == storable(text) for column in columns))
        if self.text is not None:
            text = storable(self.text)
            yield or_(*(column.icontains(text, autoescape=True) for column in _SEARCHED))


def count_audit(engine: Engine, chosen: AuditFilter) -> int:
    """Return the number of records. Raise `BackendError` if the database fails."""
    query = select(func.count()).select_from(AuditRow).where(*chosen.conditions())
    try:
        with engine.connect() as connection:
            return connection.scalar(query) or 0
    except SQLAlchemyError as error:
        raise database_error(error) from error


def read_audit(engine: Engine, chosen: AuditFilter) -> Iterator[AuditRecord]:
    """Yield records in the order in which they were written.

    Raise `BackendError` if the database fails.
    """
    query = select(*_COLUMNS).where(*chosen.conditions()).order_by(AuditRow.id)
    try:
        with engine.connect() as connection:
            for row in connection.execution_options(yield_per=_ROWS).execute(query).mappings():
                yield AuditRecord(**row)
    except SQLAlchemyError as error:
        raise database_error(error) from error


def recent_audit(
    engine: Engine, chosen: AuditFilter, *, before: int | None = None, skip: int = 0, limit: int
) -> list[tuple[int, AuditRecord]]:
    """Return the newest records with their numbers, newest first, without the first `skip`.

    `before` leaves out those whose number is not smaller. Raise `BackendError`.
    """
    query = select(AuditRow.id, *_COLUMNS).where(*chosen.conditions())
    query = query.order_by(AuditRow.id.desc()).offset(skip).limit(limit)
    if before is not None:
        query = query.where(AuditRow.id < before)
    try:
        with engine.connect() as connection:
            rows = [dict(row) for row in connection.execute(query).mappings()]
    except SQLAlchemyError as error:
        raise database_error(error) from error
    return [(row.pop("id"), AuditRecord(**row)) for row in rows]


def clean_up(engine: Engine, server: ServerIdentity, before: float) -> None:
    """Remove what began before a time, and what servers have left that are gone.

    Raise `BackendError`.
    """
    try:
        with engine.begin() as connection:
            connection.execute(delete(AuditRow).where(AuditRow.time < before))
            connection.execute(delete(SessionRow).where(SessionRow.ended_at < before))
            end_lost(connection, server)
    except SQLAlchemyError as error:
        raise database_error(error) from error
