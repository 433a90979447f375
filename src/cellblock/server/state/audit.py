"""Read the audit log, and remove what is too old."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Engine, delete, or_, select
from sqlalchemy.exc import SQLAlchemyError

from .database import database_error
from .records import AuditRecord, ServerIdentity
from .registry import end_lost
from .tables import AuditRow, SessionRow

_ROWS = 500  # that are read at once
_COLUMNS = [column for column in AuditRow.__table__.columns if column.name != "id"]


def read_audit(
    engine: Engine,
    *,
    since: float | None = None,
    until: float | None = None,
    key: str | None = None,
) -> Iterator[AuditRecord]:
    """Yield records in the order in which they were written. Times are seconds since 1970.

    since, until   when they began: at or after `since`, before `until`
    key            the ID or the name of a key

    Raise `BackendError` if the database fails.
    """
    query = select(*_COLUMNS).order_by(AuditRow.id)
    if since is not None:
        query = query.where(AuditRow.time >= since)
    if until is not None:
        query = query.where(AuditRow.time < until)
    if key is not None:
        query = query.where(or_(AuditRow.key_id == key, AuditRow.key_name == key))
    try:
        with engine.connect() as connection:
            for row in connection.execution_options(yield_per=_ROWS).execute(query).mappings():
                yield AuditRecord(**row)
    except SQLAlchemyError as error:
        raise database_error(error) from error


def recent_audit(
    engine: Engine, *, key_id: str | None, before: int | None, limit: int
) -> list[tuple[int, AuditRecord]]:
    """Return the newest records with their numbers, newest first.

    key_id   of whose records; None for those of all keys
    before   only those with a smaller number

    Raise `BackendError`.
    """
    query = select(AuditRow.id, *_COLUMNS).order_by(AuditRow.id.desc()).limit(limit)
    if key_id is not None:
        query = query.where(AuditRow.key_id == key_id)
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
