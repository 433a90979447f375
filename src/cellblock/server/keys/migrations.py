"""Bring the tables of a database to the version of this program, in one transaction.

A new database gets the present tables. An older one is changed by the steps that it lacks. To
change the tables, edit `tables`, and append a step to `STEPS` that changes an older database alike.
Never change or remove a step that was released.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence

from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, inspect, select

from ...errors import BackendError

Step = Callable[[Connection], None]

# Step N changes version N to version N + 1. The first version is 1.
STEPS: tuple[Step, ...] = ()

_version = Table("schema_version", MetaData(), Column("version", Integer, primary_key=True))


def upgrade(engine: Engine, tables: MetaData, steps: Sequence[Step] = STEPS) -> None:
    """Create `tables` in a new database, or apply the steps that the database lacks.

    If a step fails, the database is unchanged (where it can undo changes of tables, as SQLite and
    PostgreSQL can). Raise `BackendError` if the database is newer than this program.
    """
    newest = len(steps) + 1
    with engine.connect() as connection:
        if _read_version(connection) == newest:
            return
    with _exclusive_transaction(engine) as connection:
        found = _read_version(connection)  # another process may have been faster
        if found is not None and found > newest:
            raise BackendError(
                f"The database is of version {found}, and this Cellblock knows versions up to "
                f"{newest}. Update Cellblock, or use another database."
            )
        if found is None:
            tables.create_all(connection)
        for step in steps[(found or newest) - 1 :]:
            step(connection)
        _write_version(connection, newest)


def _read_version(connection: Connection) -> int | None:
    """Return the version of the database, or None if it is new."""
    if not inspect(connection).has_table(_version.name):
        return None
    return connection.execute(select(_version.c.version)).scalar_one()


def _write_version(connection: Connection, version: int) -> None:
    _version.create(connection, checkfirst=True)
    connection.execute(_version.delete())
    connection.execute(_version.insert().values(version=version))


@contextlib.contextmanager
def _exclusive_transaction(engine: Engine) -> Generator[Connection]:
    """Yield a connection of its own, in a transaction that other writers wait for."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            # By default, sqlite3 begins no transaction for changes of tables.
            driver = connection.connection.driver_connection
            assert driver is not None
            connection.detach()
            driver.isolation_level = None
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection
        connection.commit()
