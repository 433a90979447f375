"""The database of keys: its version, upgrades, newer programs, failures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, inspect, text

from cellblock.errors import BackendError
from cellblock.server.keys.database import open_database
from cellblock.server.keys.key_store import KeyStore
from cellblock.server.keys.migrations import STEPS, upgrade
from cellblock.server.keys.tables import Base

# The tables of version 1, as they were released. Do not change them.
VERSION_1 = """
CREATE TABLE api_keys (
    id VARCHAR(16) NOT NULL PRIMARY KEY, name VARCHAR(200) NOT NULL UNIQUE,
    digest VARCHAR(64) NOT NULL UNIQUE, created_at BIGINT NOT NULL, expires_at BIGINT,
    revoked_at BIGINT, max_sessions INTEGER, max_running INTEGER, cpu_seconds_a_day FLOAT,
    max_disk_bytes BIGINT, limits JSON NOT NULL, policy JSON NOT NULL);
CREATE TABLE usage (
    key_id VARCHAR(16) NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE, day INTEGER NOT NULL,
    cpu_seconds FLOAT NOT NULL, PRIMARY KEY (key_id, day));
CREATE TABLE schema_version (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO schema_version VALUES (1);
INSERT INTO api_keys VALUES
    ('abc', 'old', 'digest', 1700000000, NULL, NULL, 5, NULL, NULL, NULL, '{}', '{}')
"""


def _add_column(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE api_keys ADD COLUMN note VARCHAR(200)"))


def _fail(_connection: Connection) -> None:
    raise RuntimeError("a step that fails")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a database of version 1 with one key."""
    url = f"sqlite:///{tmp_path}/keys.db"
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in VERSION_1.split(";"):
            connection.execute(text(statement))
    engine.dispose()
    return url


def _columns(engine: Engine) -> dict[str, dict[str, str]]:
    found = inspect(engine)
    return {
        table: {column["name"]: str(column["type"]) for column in found.get_columns(table)}
        for table in found.get_table_names()
    }


def _version(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(text("SELECT version FROM schema_version")).scalar_one()


def test_an_upgraded_database_is_as_a_new_one_and_keeps_its_keys(url: str, tmp_path: Path) -> None:
    upgraded, new = open_database(url), open_database(f"sqlite:///{tmp_path}/new.db")
    assert _columns(upgraded) == _columns(new)
    assert _version(upgraded) == _version(new) == len(STEPS) + 1
    store = KeyStore(upgraded)
    (key,) = store.list_keys()
    assert (key.name, key.quotas.sessions) == ("old", 5)
    store.add("another")
    upgraded.dispose()
    new.dispose()


def test_only_missing_steps_are_applied(url: str) -> None:
    engine = create_engine(url)
    for _ in range(2):
        upgrade(engine, Base.metadata, (_add_column,))
    assert "note" in _columns(engine)["api_keys"]
    assert _version(engine) == 2
    engine.dispose()


def test_a_step_that_fails_changes_nothing(url: str) -> None:
    engine = create_engine(url)
    before = _columns(engine)
    with pytest.raises(RuntimeError):
        upgrade(engine, Base.metadata, (_add_column, _fail))
    assert (_columns(engine), _version(engine)) == (before, 1)
    engine.dispose()


def test_a_newer_database_is_refused_unchanged(url: str) -> None:
    engine = create_engine(url)
    upgrade(engine, Base.metadata, (*STEPS, _add_column))
    newer = _version(engine)
    engine.dispose()
    with pytest.raises(BackendError, match=f"version {newer}.*Update Cellblock"):
        open_database(url)


def test_several_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keys.db"
    with ThreadPoolExecutor(8) as pool:
        engines = list(pool.map(open_database, [url] * 8))
    assert {_version(engine) for engine in engines} == {len(STEPS) + 1}
    for engine in engines:
        engine.dispose()


def test_a_database_from_before_versions_has_version_1(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE schema_version"))
    engine.dispose()
    opened = open_database(url)
    assert _version(opened) == len(STEPS) + 1
    assert [key.name for key in KeyStore(opened).list_keys()] == ["old"]
    opened.dispose()
