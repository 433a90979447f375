"""The database of servers: what opens it, how its tables change, and what errors say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from cellblock.errors import BackendError
from cellblock.runtime.linux import syscalls
from cellblock.server.keys.key_store import KeyStore
from cellblock.server.state import migrations
from cellblock.server.state.database import open_database
from cellblock.server.state.schema import script_directory
from cellblock.server.state.tables import Base
from tests.command_server import run_command

from .postgresql import QUOTED_PASSWORD, PostgresServer

# Keys of `released.sql`.
LAPTOP, GONE = (
    "cb_pbgfb0nXv49QAN7ICMmV1AuCAIwkocTbG5Vvq5uxchU",
    "cb_c6I-IruETPCrehl0C5U5gXcM1Jx9dsknzxZsqJE5c00",
)


@pytest.fixture
def released(tmp_path: Path) -> str:
    """Return the URL of a database as it was before it had revisions, with four keys."""
    connection = sqlite3.connect(tmp_path / "released.db")
    connection.executescript(Path(__file__).with_name("released.sql").read_text())
    connection.close()
    return f"sqlite:///{tmp_path}/released.db"


def _differences(engine: Engine) -> list[object]:
    """Return what of the tables differs from what the code uses."""
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    return list(found)


def test_the_revisions_make_the_tables_that_the_code_uses(url: str) -> None:
    engine = open_database(url)
    assert _differences(engine) == []
    engine.dispose()
    assert script_directory().get_current_head() == migrations.NEWEST


def test_a_database_without_revisions_keeps_its_keys_and_their_usage(released: str) -> None:
    engine = open_database(released)
    assert _differences(engine) == []
    keys = KeyStore(engine)
    assert [(key.name, key.state) for key in keys.list_keys()] == [
        ("laptop", "active"),
        ("class", "active"),
        ("robot", "active"),
        ("gone", "revoked"),
    ]
    owner = asyncio.run(keys.find_owner(LAPTOP))
    assert (owner.quotas.sessions, owner.quotas.running) == (10, 2)
    with pytest.raises(Exception, match="was revoked"):
        asyncio.run(keys.find_owner(GONE))
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT cpu_seconds FROM daily_usage")) == 12.5
    keys.close()


def test_an_upgrade_that_fails_changes_nothing(url: str) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE sessions (id INTEGER)"))  # in the way of revision 3
    with pytest.raises(BackendError, match="cannot be opened: .*sessions"):
        open_database(url)
    assert inspect(engine).get_table_names() == ["sessions"]
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE sessions"))
    open_database(url).dispose()
    assert _differences(engine) == []
    engine.dispose()


@pytest.mark.depends_on_user
def test_a_file_of_another_user_is_named(tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path}/server.db", tmp_path / "server.db"
    open_database(url).dispose()
    with read_only(path), pytest.raises(BackendError, match=f"{path} .* user of the server"):
        open_database(url)


@contextlib.contextmanager
def read_only(path: Path) -> Generator[None]:
    """Forbid writing to a file, which root may do in spite of its permissions."""
    if os.geteuid() != 0:
        path.chmod(0o400)
        yield
        return
    syscalls.mount(str(path), str(path), None, syscalls.MS_BIND)
    try:
        flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY
        syscalls.mount("none", str(path), None, flags)
        yield
    finally:
        syscalls.unmount(str(path), syscalls.MNT_DETACH)


def test_several_processes_may_open_a_new_database_at_once(url: str) -> None:
    with ThreadPoolExecutor(3) as pool:
        added = [pool.submit(run_command, "keys", "add", name, "--database", url) for name in "abc"]
        assert [each.result().stderr for each in added] == [""] * 3
    engine = open_database(url)
    assert _differences(engine) == []
    engine.dispose()


def test_a_newer_database_is_refused(url: str) -> None:
    engine = open_database(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(BackendError, match=r"revision '9999', which a newer version"):
        open_database(url)


def test_the_error_of_a_url_does_not_show_its_password() -> None:
    shown = list[str]()
    for broken in (
        "postgresql://me:hidden-word@[::1/keys",
        "postgresql://me:hidden-word@localhost:port/keys",
        "postgresql+nonsense://me:hidden-word@localhost/keys",
        "postgresql://me:hidden-word@hidden-word@localhost/keys",
        "postgresql://me:word@hidden-word/x@localhost/keys",
        "mysql://me:hidden-word@localhost/keys",
        "hidden-word",
    ):
        with pytest.raises(BackendError) as caught:
            open_database(broken)
        error: BaseException | None = caught.value
        while error is not None:
            shown.append(str(error))
            error = error.__cause__
    assert [text for text in shown if "hidden-word" in text] == []


@pytest.mark.postgres
def test_errors_of_postgresql_do_not_show_the_password(postgres: PostgresServer) -> None:
    wrong = postgres.url("postgres").replace(QUOTED_PASSWORD, "hidden-word")
    cases = {
        wrong: "password authentication failed",
        postgres.url("missing"): '"missing" does not exist',
        f"postgresql://me:hidden-word@/x?host={postgres.folder}/nowhere": "connection",
    }
    for url, message in cases.items():
        done = run_command("keys", "list", "--database", url)
        assert done.returncode == 3
        assert message in done.stderr
        assert "hidden-word" not in done.stderr
        assert "secret" not in done.stderr


def test_a_missing_driver_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BackendError, match=r"cellblock\[server,postgres\]"):
        open_database("postgresql://localhost/keys")


@pytest.mark.postgres
def test_url_of_any_spelling_uses_psycopg(postgres_url: str) -> None:
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        engine = open_database(postgres_url.replace("postgresql", scheme, 1))
        assert engine.driver == "psycopg"
        engine.dispose()


def test_the_state_of_an_open_database_is_read_without_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/server.db"
    open_database(url).dispose()
    program = "import sys; from cellblock.server.state.database import open_database as open_\n"
    program += "open_(sys.argv[1]).dispose(); sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program, url], check=False).returncode == 0
