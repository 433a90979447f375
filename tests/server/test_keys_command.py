"""`cellblock keys`: what it stores, prints and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.cli_process import run_command


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a new database for each test."""
    path = tmp_path / "keys.db"
    monkeypatch.setenv("CELLBLOCK_DATABASE", f"sqlite:///{path}")
    return path


def _refusal(*arguments: str) -> str:
    """Return the one line that says why a key was not added."""
    done = run_command("keys", "add", "me", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr.strip().splitlines()[-1]


def test_keys_are_added_listed_and_revoked(database: Path) -> None:
    assert run_command("keys", "add", "me").stdout.startswith("cb_")
    assert "There is a key named 'me'" in run_command("keys", "add", "me").stderr
    key_id, state, _, name = run_command("keys", "list").stdout.rstrip("\n").split("\t")
    assert (state, name) == ("active", "me")
    assert run_command("keys", "revoke", "me").stdout == f"{key_id}\n"
    assert run_command("keys", "list").stdout.split("\t")[1] == "revoked"
    assert database.stat().st_mode & 0o077 == 0


def test_keys_are_of_administrators_only_on_request() -> None:
    run_command("keys", "add", "me")
    run_command("keys", "add", "chief", "--admin")
    lines = run_command("keys", "list", "--json").stdout.splitlines()
    assert {(key["name"], key["admin"]) for key in map(json.loads, lines)} == {
        ("me", False),
        ("chief", True),
    }


def test_a_name_is_free_again_when_its_key_was_revoked() -> None:
    old = run_command("keys", "add", "me").stdout
    run_command("keys", "revoke", "me")
    assert run_command("keys", "add", "me").stdout not in ("", old)
    (only,) = run_command("keys", "list").stdout.splitlines()
    assert only.split("\t")[1] == "active"


@pytest.mark.parametrize("command", [["list"], ["revoke", "me"]])
def test_a_misspelt_database_is_not_created(command: list[str], database: Path) -> None:
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


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
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
    ],
)
def test_values_that_are_not_valid_are_refused(option: str, value: str, reason: str) -> None:
    refusal = _refusal(option, value)
    assert option in refusal
    assert reason in refusal


@pytest.mark.parametrize(
    ("option", "value", "source", "json_value"),
    [
        ("--memory", "512M", "--limits", '{"memory_bytes": 536870912}'),
        ("--timeout", "5", "--limits", '{"wall_seconds": 5}'),
    ],
)
def test_one_limit_is_set_once(option: str, value: str, source: str, json_value: str) -> None:
    assert f"{option} and {source} both set" in _refusal(option, value, source, json_value)
    assert "--network and --policy both set network" in _refusal(
        "--network", "--policy", '{"network": "host"}'
    )
