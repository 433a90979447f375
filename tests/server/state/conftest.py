"""Databases: an SQLite file, or a new database of a PostgreSQL server of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from .postgresql import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Yield a PostgreSQL server for all tests of a process."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """Return the URL of an empty database."""
    name = f"test_{uuid4().hex}"
    postgres.execute(f"CREATE DATABASE {name}")
    return postgres.url(name)


_OTHER = pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.exhaustive])


@pytest.fixture(params=["sqlite", _OTHER])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/server.db"
    found: str = request.getfixturevalue("postgres_url")
    return found
