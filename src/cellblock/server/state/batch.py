"""Batch: what a server writes to the database at once, exactly once."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import SQLAlchemyError

from .database import database_error
from .records import AuditRecord, ServerIdentity
from .registry import SessionEnd, SessionUse, revive, write_sessions
from .tables import AuditRow, ServerRow
from .usage import DailyUsage, add_usage


@dataclass
class Batch:
    """What has happened since the last batch.

    audit   records of the audit log
    usage   what keys have used, by key and day
    uses, ends   when sessions were used and have ended, by their ID
    """

    audit: list[AuditRecord] = field(default_factory=list[AuditRecord])
    usage: dict[tuple[str, int], DailyUsage] = field(
        default_factory=dict[tuple[str, int], DailyUsage]
    )
    uses: dict[str, SessionUse] = field(default_factory=dict[str, SessionUse])
    ends: dict[str, SessionEnd] = field(default_factory=dict[str, SessionEnd])

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.audit or self.usage or self.uses or self.ends)

    def usage_of(self, key_id: str, key_name: str, day: int) -> DailyUsage:
        """Return what a key has used on a day, to be increased."""
        found = self.usage.get((key_id, day))
        if found is None:
            found = DailyUsage(key_id=key_id, key_name=key_name, day=day)
            self.usage[key_id, day] = found
        return found

    def cpu_seconds(self, key_id: str, day: int) -> float:
        """Return the CPU seconds of a key on a day."""
        found = self.usage.get((key_id, day))
        return 0.0 if found is None else found.cpu_seconds


def write(
    engine: Engine,
    server: ServerIdentity,
    number: int,
    batch: Batch,
    session_ids: Collection[str] = (),
) -> None:
    """Write the batch `number` of a server, all of it or nothing. Raise `BackendError`.

    Nothing is written twice if the answer to an earlier attempt was lost. `session_ids` are those
    of the sessions that the server has.
    """
    try:
        with engine.begin() as connection:
            if not _begin(connection, server, number, session_ids):
                return
            write_sessions(connection, batch.uses, batch.ends)
            add_usage(connection, batch.usage.values())
            if batch.audit:
                connection.execute(insert(AuditRow), [asdict(each) for each in batch.audit])
    except SQLAlchemyError as error:
        raise database_error(error) from error


def leave(engine: Engine, server: ServerIdentity) -> None:
    """Remove a server that has ended. Raise `BackendError`."""
    try:
        with engine.begin() as connection:
            connection.execute(delete(ServerRow).where(ServerRow.id == server.id))
    except SQLAlchemyError as error:
        raise database_error(error) from error


def _begin(
    connection: Connection, server: ServerIdentity, number: int, session_ids: Collection[str]
) -> bool:
    """Set the number of the newest batch. Return False if it is `number` already."""
    own, now = ServerRow.id == server.id, time.time()
    changed = connection.execute(
        update(ServerRow).where(own, ServerRow.batch < number).values(seen_at=now, batch=number)
    )
    if changed.rowcount:
        return True
    if connection.scalar(select(ServerRow.batch).where(own)) is not None:
        return False
    connection.execute(insert(ServerRow).values(seen_at=now, batch=number, **vars(server)))
    revive(connection, session_ids)
    return True
