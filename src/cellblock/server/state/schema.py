"""Bring a database to the newest revision, one process at a time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from ...errors import BackendError
from . import migrations

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

# Any number of our own: PostgreSQL's advisory locks belong to a database, and have no names.
_ADVISORY_LOCK = 0x63656C6C  # "cell"


def upgrade(engine: Engine) -> None:
    """Apply the revisions that the database lacks, all or none of them.

    Raise `BackendError` if it has a revision that this version does not know.
    """
    with engine.connect() as connection:
        if _revision(connection) == migrations.NEWEST:
            return  # Alembic takes a third of a second to import
    with engine.begin() as connection:
        _lock(connection)
        _apply(connection)


def _revision(connection: Connection) -> str | None:
    """Return the revision of the database; None if it was made by a version up to 0.5."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.scalar(text("SELECT version_num FROM alembic_version"))


def _lock(connection: Connection) -> None:
    """Keep other processes from changing the tables, until the end of the transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    else:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # else sqlite3 begins at the first INSERT


def _apply(connection: Connection) -> None:
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

    found, script = _revision(connection), script_directory()
    known = [each.revision for each in script.walk_revisions()]  # the newest first
    if found is not None and found not in known:
        raise BackendError(
            f"The database has revision {found!r}, which a newer version of Cellblock has made. "
            "Install that version, or use another database."
        )
    missing = known[: known.index(found)] if found is not None else known
    context = MigrationContext.configure(connection)
    for revision in reversed(missing):
        with Operations.context(context):
            script.get_revision(revision).module.upgrade()
        context.stamp(script, revision)


def script_directory() -> ScriptDirectory:
    """Return the revisions of this version."""
    from alembic.script import ScriptDirectory

    folder = str(Path(migrations.__file__).parent)
    return ScriptDirectory(folder, version_locations=[folder])
