"""The database of keys: one that exists already, and several processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from cellblock.server.keys.database import open_database
from cellblock.server.keys.key_store import KeyStore

# The tables as they were released.
RELEASED = """
CREATE TABLE api_keys (
    id VARCHAR(16) NOT NULL PRIMARY KEY, name VARCHAR(200) NOT NULL UNIQUE,
    digest VARCHAR(64) NOT NULL UNIQUE, created_at BIGINT NOT NULL, expires_at BIGINT,
    revoked_at BIGINT, max_sessions INTEGER, max_running INTEGER, cpu_seconds_a_day FLOAT,
    max_disk_bytes BIGINT, limits JSON NOT NULL, policy JSON NOT NULL);
CREATE TABLE usage (
    key_id VARCHAR(16) NOT NULL REFERENCES api_keys (id) ON DELETE CASCADE, day INTEGER NOT NULL,
    cpu_seconds FLOAT NOT NULL, PRIMARY KEY (key_id, day));
INSERT INTO api_keys VALUES
    ('abc', 'old', 'digest', 1700000000, NULL, NULL, 5, NULL, NULL, NULL, '{}', '{}')
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a released database with one key."""
    url = f"sqlite:///{tmp_path}/keys.db"
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in RELEASED.split(";"):
            connection.execute(text(statement))
    engine.dispose()
    return url


def _columns(engine: Engine) -> dict[str, dict[str, str]]:
    found = inspect(engine)
    return {
        table: {column["name"]: str(column["type"]) for column in found.get_columns(table)}
        for table in found.get_table_names()
    }


def test_an_older_database_is_as_a_new_one_and_keeps_its_keys(url: str, tmp_path: Path) -> None:
    older, new = open_database(url), open_database(f"sqlite:///{tmp_path}/new.db")
    assert _columns(older) == _columns(new)
    store = KeyStore(older)
    (key,) = store.list_keys()
    assert (key.name, key.quotas.sessions) == ("old", 5)
    store.add("another")
    older.dispose()
    new.dispose()


def test_several_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/keys.db"
    with ThreadPoolExecutor(8) as pool:
        engines = list(pool.map(open_database, [url] * 8))
    assert [len(_columns(engine)) for engine in engines] == [2] * 8
    for engine in engines:
        engine.dispose()
