"""`cellblock keys`: what it stores, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command_server import run_command


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a new database for each test."""
    path = tmp_path / "keys.db"
    monkeypatch.setenv("CELLBLOCK_DATABASE", f"sqlite:///{path}")
    return path


@pytest.mark.depends_on_user
def test_keys_are_added_listed_and_revoked(database: Path) -> None:
    assert run_command("keys", "add", "me").stdout.startswith("cb_")
    assert "There is a key named 'me'" in run_command("keys", "add", "me").stderr
    headings, line = run_command("keys", "list").stdout.splitlines()
    key_id, state, _, name = line.split()
    assert (headings.split(), state, name) == (["ID", "STATE", "CREATED", "NAME"], "active", "me")
    assert run_command("keys", "revoke", "me").stdout == f"{key_id}\n"
    assert " revoked " in run_command("keys", "list").stdout
    assert database.stat().st_mode & 0o077 == 0


def test_a_name_is_free_again_when_its_key_was_revoked() -> None:
    old = run_command("keys", "add", "me").stdout
    run_command("keys", "revoke", "me")
    assert run_command("keys", "add", "me", "--admin").stdout not in ("", old)
    _, only = run_command("keys", "list").stdout.splitlines()
    assert only.split()[1] == "active"
    assert json.loads(run_command("keys", "list", "--json").stdout)["admin"] is True


def test_a_misspelt_database_is_not_created(database: Path) -> None:
    for command in (["list"], ["revoke", "me"]):
        done = run_command("keys", *command)
        assert done.returncode != 0
        assert f"There is no database {database}. `cellblock keys add` creates it." in done.stderr
        assert "CELLBLOCK_DATABASE" in done.stderr
        assert not database.exists()


def test_all_settings_of_a_key_are_listed_as_json() -> None:
    run_command("keys", "add", "plain")
    options = {
        "--max-sessions": "3",
        "--max-running": "2",
        "--cpu-seconds": "60",
        "--disk": "2G",
        "--memory": "512M",
        "--timeout": "30",
        "--limits": '{"processes": 64, "files": null}',
        "--policy": '{"read_only": ["/srv", ["/opt", "/data"]], "environment": {"A": "1"}}',
    }
    done = run_command("keys", "add", "special", "--network", *sum(options.items(), ()))
    assert done.returncode == 0, done.stderr
    plain, key = map(json.loads, run_command("keys", "list", "--json").stdout.splitlines())
    assert (plain["name"], plain["limits"], plain["policy"]) == ("plain", {}, {})
    assert (plain["admin"], key["admin"]) == (False, False)
    assert set(plain["quotas"].values()) == {None}
    assert key["quotas"] == {
        "sessions": 3,
        "running": 2,
        "cpu_seconds_a_day": 60,
        "disk_bytes": 2 << 30,
    }
    assert key["limits"] == {
        "memory_bytes": 512 << 20,
        "wall_seconds": 30,
        "processes": 64,
        "files": None,
    }
    assert key["policy"] == {
        "network": "host",
        "read_only": [["/srv", None], ["/opt", "/data"]],
        "environment": {"A": "1"},
    }


def test_a_network_that_is_denied_is_not_one_that_is_not_named() -> None:
    run_command("keys", "add", "offline", "--no-network")
    assert json.loads(run_command("keys", "list", "--json").stdout)["policy"] == {"network": "none"}


def test_values_that_are_not_valid_are_refused() -> None:
    faults = list[object]()
    for option, value, reason in (
        ("--limits", "{", "not JSON"),
        ("--limits", "[1]", "JSON object"),
        ("--limits", '{"memory": 1}', "Unknown limits: memory"),
        ("--limits", '{"processes": 1}', "at least 2"),
        ("--limits", '{"cpu_seconds": NaN}', "above 0"),
        ("--policy", '{"net": "host"}', "Unknown fields of a policy: net"),
        ("--policy", '{"network": "all"}', "'none' or 'host'"),
        ("--policy", '{"read_only": "/data"}', "must be a list"),
        ("--policy", '{"read_only": [["/a", "/b", "/c"]]}', "source and target"),
        ("--policy", '{"read_write": ["data"]}', "absolute path"),
        ("--policy", '{"environment": {"A": 1}}', "must be a string"),
        ("--memory", "1K", "too small"),
        ("--disk", "1K", "too small"),
        ("--disk", "much", "not a size"),
        ("--timeout", "0", "not in the range"),
        ("--memory=512M --limits", '{"memory_bytes": 536870912}', "--memory and --limits both set"),
        ("--timeout=5 --limits", '{"wall_seconds": 5}', "--timeout and --limits both set"),
        ("--network --policy", '{"network": "host"}', "--network and --policy both set network"),
    ):
        options = option.split()
        done = run_command("keys", "add", "me", *options, value)
        line = done.stderr.strip().rpartition("\n")[2]
        if (
            (done.returncode, done.stdout) != (2, "")
            or options[-1] not in line
            or reason not in line
        ):
            faults.append(done)
    assert faults == []
