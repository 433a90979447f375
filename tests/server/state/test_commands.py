"""`cellblock audit` and `cellblock keys usage`: what they print, choose and refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock.server.state.batch import Batch, write
from cellblock.server.state.database import open_database
from cellblock.server.state.records import AuditRecord, ServerIdentity
from tests.command_server import run_command

from .reading import read_audit, read_usage

SECONDS_A_DAY = 86_400
DAY = 20_000  # 2024-10-04


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Return the URL of a database with a run of each of two keys, on two days."""
    url = f"sqlite:///{tmp_path}/server.db"
    engine, batch = open_database(url), Batch()
    for number, key in enumerate(["first", "second"]):
        batch.audit.append(
            AuditRecord(
                time=(DAY + number) * SECONDS_A_DAY + 0.5,
                key_id=f"id-{key}",
                key_name=key,
                door="rest",
                action="run",
            )
        )
        used = batch.usage_of(f"id-{key}", key, DAY + number)
        used.sessions, used.runs, used.run_seconds, used.cpu_seconds = 2, 3, 2.5, 1.25
    write(engine, ServerIdentity("one", "one", 0), 1, batch)
    engine.dispose()
    return url


def test_records_are_chosen_by_time_and_key(database: str) -> None:
    cases: dict[tuple[str, ...], list[str]] = {
        (): ["first", "second"],
        ("--since", "2024-10-05"): ["second"],
        ("--since", "2024-10-04T00:00:00.500"): ["first", "second"],
        ("--since", "2024-10-04T01:00:00.501+01:00"): ["second"],
        ("--until", "2024-10-05"): ["first"],
        ("--key", "second"): ["second"],
        ("--key", "id-first"): ["first"],
        ("--since", "24h"): [],
    }
    found = {
        options: [record["key_name"] for record in read_audit(database, *options)]
        for options in cases
    }
    assert found == cases
    assert read_audit(database)[0]["time"] == "2024-10-04T00:00:00.500Z"


def test_usage_is_printed_by_day_and_key(database: str) -> None:
    done = run_command("keys", "usage", "--database", database, "--since", "2024-10-04")
    assert done.stdout.splitlines() == [
        "DAY         SESSIONS  RUNS  SECONDS  CPU SECONDS  NAME",
        "2024-10-04  2         3     2.500    1.250        first",
        "2024-10-05  2         3     2.500    1.250        second",
    ]
    assert read_usage(database) == []  # of the last 30 days
    (used,) = read_usage(database, "--since", "2024-10-05")
    assert (used["day"], used["key_id"], used["runs"]) == ("2024-10-05", "id-second", 3)


def test_a_time_that_is_none_is_a_usage_error() -> None:
    values = ["yesterday", "12", "5y", "", "-3d", "2024-13-01"]
    cases = [("audit", "--since", value) for value in values]
    done = {case: run_command(*case) for case in [*cases, ("keys", "usage", "--since", "12")]}
    wrong = {case: each for case, each in done.items() if each.returncode != 2}
    assert wrong == {}
    assert [
        case for case, each in done.items() if "is not a time, such as" not in each.stderr
    ] == []


def test_a_database_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = run_command("audit", "--database", f"sqlite:///{tmp_path}/missing.db")
    assert done.returncode == 3
    assert f"There is no database {tmp_path}/missing.db" in done.stderr
