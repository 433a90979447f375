"""What keys use on each day (UTC): added by servers, read for quotas and reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from .database import database_error
from .records import storable
from .tables import UsageRow

SECONDS_A_DAY = 86_400
Insert = postgresql.Insert | sqlite.Insert
_INSERTS: dict[str, Callable[[type[UsageRow]], Insert]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}


@dataclass(kw_only=True)
class DailyUsage:
    """What a key has used on one day. `day` is the number of days since 1970 (UTC)."""

    key_id: str
    key_name: str
    day: int
    runs: int = 0
    sessions: int = 0
    run_seconds: float = 0.0
    cpu_seconds: float = 0.0


def today() -> int:
    """Return the number of days since 1970 (UTC)."""
    return int(time.time()) // SECONDS_A_DAY


def add_usage(connection: Connection, increases: Iterable[DailyUsage]) -> None:
    """Add to what is there. Several servers may do so at once."""
    insert = _INSERTS[connection.dialect.name]
    # In one order, so that no two servers wait for each other.
    for each in sorted(increases, key=lambda one: (one.key_id, one.day)):
        statement = insert(UsageRow).values(**vars(each))
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[UsageRow.key_id, UsageRow.day],
                set_={
                    "runs": UsageRow.runs + each.runs,
                    "sessions": UsageRow.sessions + each.sessions,
                    "run_seconds": UsageRow.run_seconds + each.run_seconds,
                    "cpu_seconds": UsageRow.cpu_seconds + each.cpu_seconds,
                },
            )
        )


def cpu_seconds_of(engine: Engine, key_id: str, day: int) -> float:
    """Return the CPU seconds of a key on one day. Raise `BackendError`."""
    query = select(UsageRow.cpu_seconds).where(UsageRow.key_id == key_id, UsageRow.day == day)
    try:
        with engine.connect() as connection:
            return connection.scalar(query) or 0.0
    except SQLAlchemyError as error:
        raise database_error(error) from error


def read_usage(
    engine: Engine,
    *,
    since_day: int | None = None,
    key: str | None = None,
    owner_id: str | None = None,
) -> list[DailyUsage]:
    """Return what each key has used, by day and name.

    key        the ID or the name of a key
    owner_id   the ID of the only key whose usage may be read; None for all

    Raise `BackendError`.
    """
    query = select(*UsageRow.__table__.columns).order_by(UsageRow.day, UsageRow.key_name)
    if since_day is not None:
        query = query.where(UsageRow.day >= since_day)
    if key is not None:
        text = storable(key)
        query = query.where(or_(UsageRow.key_id == text, UsageRow.key_name == text))
    if owner_id is not None:
        query = query.where(UsageRow.key_id == owner_id)
    try:
        with engine.connect() as connection:
            return [DailyUsage(**row) for row in connection.execute(query).mappings()]
    except SQLAlchemyError as error:
        raise database_error(error) from error
