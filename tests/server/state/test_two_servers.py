"""Two servers on one database: keys, quotas, usage and the audit log are those of both."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from cellblock.server.owners import Quotas
from tests.command_server import run_command
from tests.server.console.visiting import visiting
from tests.server.rest.requesting import FOREVER, run, start, wait_for
from tests.server.serving import Server, run_old, serving

from .postgresql import PostgresServer
from .reading import read_audit, read_usage, records_of, runs_of

Pair = tuple[Server, Server]


@pytest.fixture(
    scope="module",
    params=[
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.exhaustive]),
    ],
)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a database for all tests of the file."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('state')}/server.db"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    postgres.execute("CREATE DATABASE two_servers")
    return postgres.url("two_servers")


@pytest.fixture(scope="module")
def pair(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Yield two servers on one database."""
    folder = tmp_path_factory.mktemp("servers")
    with (
        serving(folder, "--name", "one", database=database) as one,
        serving(folder, "--name", "two", database=database) as two,
    ):
        yield one, two


@contextlib.contextmanager
def _clients(pair: Pair, key: str) -> Generator[list[httpx.Client]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(server.client(key, "/v1")) for server in pair]


def _status(client: httpx.Client) -> int:
    return client.get("/sessions").status_code


def test_a_key_works_on_both_at_once_until_it_is_revoked(pair: Pair) -> None:
    key = pair[0].add_key("shared")
    with _clients(pair, key) as clients:
        assert list(map(_status, clients)) == [200, 200]
        pair[1].keys.revoke("shared")
        for client in clients:
            wait_for(lambda client=client: _status(client) == 401)
    records = records_of(pair[0], "shared", 2)
    assert [record["action"] for record in records] == ["key.add", "key.revoke"]


def test_cpu_seconds_of_both_count_for_a_quota(pair: Pair) -> None:
    key = pair[0].add_key("short", Quotas(cpu_seconds_a_day=0.4))
    code = "import time\nend = time.process_time() + 0.25\nwhile time.process_time() < end: pass"
    with _clients(pair, key) as (one, two):
        for client in (one, two):
            assert client.post("/runs", json={"code": code}).status_code == 200
        for client in (one, two):
            wait_for(lambda client=client: _refusal(client) == "TooManyRequests")


def _refusal(client: httpx.Client) -> str:
    answer = client.post("/runs", json={"code": "1"})
    return "" if answer.status_code == 200 else answer.json()["error"]["code"]


def test_usage_adds_up_and_each_run_is_recorded_once(pair: Pair, database: str) -> None:
    key = pair[0].add_key("busy")
    with _clients(pair, key) as clients, ThreadPoolExecutor(8) as pool:
        jobs = [(client, number) for number in range(10) for client in clients]
        infos = list(pool.map(_run_one, jobs))
    runs = runs_of(pair[0], "busy", 1 + len(infos))
    used = read_usage(database, "--key", "busy")[-1]
    cpu_seconds = sum(info["result"]["usage"]["cpu_seconds"] for info in infos)
    assert used["runs"] == len(infos)
    assert used["cpu_seconds"] == pytest.approx(cpu_seconds, abs=0.001)
    assert used["run_seconds"] == pytest.approx(sum(record["seconds"] for record in runs))
    assert len(runs) == len(infos)
    assert {record["server"] for record in runs} == {"one", "two"}
    outcomes = {record["run"]: record["outcome"] for record in runs}
    assert outcomes == {info["id"]: info["result"]["outcome"] for info in infos}


def _run_one(job: tuple[httpx.Client, int]) -> dict[str, Any]:
    client, number = job
    answer = client.post("/runs", json={"code": f"print({number}); assert {number} != 3"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_records_name_door_session_language_and_outcome(pair: Pair) -> None:
    with pair[0].client(pair[0].add_key("doors")) as client:
        assert client.post("/v1/sessions", json={"id": "mine"}).status_code == 201
        run(client, "/v1/sessions/mine", "private = 1")
        run(client, "/v1/sessions/mine", "echo private; exit 3", language="sh")
        run(client, "/v1", FOREVER, timeout_seconds=1)
        cancelled = start(client, "/v1/sessions/mine", FOREVER)
        client.post(f"/v1{cancelled}/cancel")
        for command in ("true", "false"):
            client.post("/v1/sessions/mine/commands", json={"command": command})
        run_old(client, "1", "other")
        client.post("/run_code", json={"code": "print(1)", "language": "python"})
        client.post("/execute", json={"generated_code": "echo 1", "language": "shell"})
        client.delete("/v1/sessions/mine")
    records = records_of(pair[0], "doors", 13)
    assert [
        (each["door"], each["action"], each.get("session"), each.get("language"), each["outcome"])
        for each in records[1:]
    ] == [
        ("rest", "session.start", "mine", None, "ok"),
        ("rest", "run", "mine", "python", "ok"),
        ("rest", "run", "mine", "sh", "error"),
        ("rest", "run", None, "python", "timeout"),
        ("rest", "run", "mine", "python", "cancelled"),
        ("rest", "command", "mine", None, "ok"),
        ("rest", "command", "mine", None, "error"),
        ("azure", "session.start", "other", None, "ok"),
        ("azure", "run", "other", "python", "ok"),
        ("sandbox_fusion", "run", None, "python", "ok"),
        ("nemo_skills", "run", None, "shell", "ok"),
        ("rest", "session.end", "mine", None, "deleted"),
    ]
    assert records[0]["action"] == "key.add"
    assert records[4]["seconds"] >= 1
    assert records[-1]["seconds"] > 0
    assert set(records[2]) == {
        "time", "key_id", "key_name", "server", "door", "action", "session", "run", "language",
        "outcome", "seconds", "cpu_seconds",
    }  # fmt: skip
    assert "private" not in str(records)
    assert read_usage(pair[0].database, "--key", "doors")[-1]["sessions"] == 2


def test_sessions_of_both_count_for_a_quota(pair: Pair) -> None:
    key = pair[0].add_key("few", Quotas(sessions=2))
    with _clients(pair, key) as (one, two):
        for client in (one, two):
            assert client.post("/sessions").status_code == 201
        for client, path in ((one, "/sessions"), (two, "/sessions"), (two, "/runs")):
            answer = client.post(path, json={"code": "1"} if path == "/runs" else {})
            assert answer.json()["error"]["code"] == "TooManySessions"
        (listed, _) = one.get("/sessions").json()["sessions"]
        assert one.delete(f"/sessions/{listed['id']}").status_code == 204
        wait_for(lambda: two.post("/sessions").status_code == 201)
        assert _refusal(one) == "TooManySessions"


def test_the_last_session_of_a_quota_is_made_once(pair: Pair) -> None:
    key = pair[0].add_key("single", Quotas(sessions=1))
    with _clients(pair, key) as clients, ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(_make_session, clients * 4))
        assert sorted(codes) == [201, *[429] * 7]
        assert [len(client.get("/sessions").json()["sessions"]) for client in clients] == [1, 1]


def _make_session(client: httpx.Client) -> int:
    return client.post("/sessions").status_code


def test_a_session_of_another_server_is_listed_and_refused(pair: Pair) -> None:
    key = pair[0].add_key("moving")
    with _clients(pair, key) as (one, two), pair[1].client(key) as azure:
        made = one.post("/sessions", json={"id": "mine"}).json()
        assert made["server"] is None
        (listed,) = two.get("/sessions").json()["sessions"]
        assert (listed["id"], listed["server"]) == ("mine", "one")
        assert 300 < _idle_seconds(listed) < 900
        for answer in (
            two.get("/sessions/mine"),
            two.delete("/sessions/mine"),
            two.post("/sessions", json={"id": "mine"}),
            two.post("/sessions/mine/runs", json={"code": "1"}),
            two.get("/sessions/mine/files"),
            run_old(azure, "1", "mine"),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (421, "SessionElsewhere")
            assert "on the server 'one'" in answer.json()["error"]["message"]
        two.post("/sessions", json={"id": "other"})
        fork = two.post("/sessions/other/fork", json={"id": "mine"})
        assert fork.json()["error"]["code"] == "SessionElsewhere"
        assert two.get("/sessions/none").json()["error"]["code"] == "SessionNotFound"
        assert one.delete("/sessions/mine").status_code == 204
        wait_for(lambda: two.post("/sessions", json={"id": "mine"}).status_code == 201)


def test_a_second_server_with_the_same_name_is_refused(pair: Pair, database: str) -> None:
    key = pair[0].add_key("unique")
    with _clients(pair, key) as (one, two):
        assert one.post("/sessions", json={"id": "kept"}).status_code == 201
        done = run_command("serve", "--port", "0", "--name", "one", "--database", database)
        assert done.returncode == 3, done
        assert "Another server with the name 'one' uses this database." in done.stderr
        assert one.get("/sessions/kept").status_code == 200
        assert two.get("/sessions/kept").json()["error"]["code"] == "SessionElsewhere"


def _idle_seconds(session: dict[str, Any]) -> float:
    created, expires = (
        datetime.fromisoformat(session[name]) for name in ("created_at", "expires_at")
    )
    return (expires - created).total_seconds()


@pytest.mark.slow
def test_the_console_names_the_server_of_a_session(pair: Pair) -> None:
    key = pair[0].add_key("watching")
    with pair[0].client(key, "/v1") as one, visiting(pair[1], key) as visitor:
        assert "On other servers" not in visitor.get("/sessions").text
        one.post("/sessions", json={"id": "over-there"})
        page = visitor.get("/sessions").text
    _, _, elsewhere = page.partition("On other servers")
    assert "over-there" in elsewhere
    assert '<td data-label="Server">one</td>' in elsewhere
    assert "/sessions/over-there" not in page


@pytest.mark.slow
def test_a_killed_server_has_recorded_what_had_ended_and_loses_its_sessions(
    pair: Pair, database: str, tmp_path: Path
) -> None:
    """A server with its name has them at once, another one after a minute."""
    key = pair[0].add_key("killed")
    with serving(tmp_path, "--name", "killed", database=database) as killed:
        with killed.client(key, "/v1") as client:
            ended = client.post("/runs", json={"code": "1"}).json()["id"]
            assert client.post("/sessions", json={"id": "a"}).status_code == 201
            start(client, "/sessions/a", FOREVER)
            records_of(pair[0], "killed", 3)
        killed.kill()
    assert [each["run"] for each in runs_of(pair[0], "killed", 3)] == [ended]
    with pair[1].client(key, "/v1") as other:
        refused = other.post("/sessions", json={"id": "a"})
        assert refused.json()["error"]["code"] == "SessionElsewhere"
        with serving(tmp_path, "--name", "killed", database=database) as again:
            with again.client(key, "/v1") as client:
                assert client.get("/sessions").json()["sessions"] == []
                assert client.post("/sessions", json={"id": "a"}).status_code == 201
            again.kill()
        refused = other.post("/sessions", json={"id": "a"})
        assert refused.json()["error"]["code"] == "SessionElsewhere"
        with pair[0].keys._engine.begin() as connection:
            old = "UPDATE servers SET seen_at = seen_at - 61 WHERE name = 'killed'"
            connection.execute(text(old))
        assert other.post("/sessions", json={"id": "a"}).status_code == 201


@pytest.mark.slow
def test_what_a_server_runs_when_it_stops_is_recorded(database: str, tmp_path: Path) -> None:
    with serving(tmp_path, "--drain", "0", database=database) as server:
        with server.client(server.add_key("stopped"), "/v1") as client:
            ended = client.post("/runs", json={"code": "1"}).json()["id"]
            assert client.post("/sessions", json={"id": "a"}).status_code == 201
            start(client, "/sessions/a", FOREVER)
    records = read_audit(database, "--key", "stopped")
    first, last = (each for each in records if each["action"] == "run")
    assert (first["run"], first["outcome"]) == (ended, "ok")
    assert last["outcome"] == "stopped"


@pytest.mark.slow
@pytest.mark.postgres
def test_a_run_that_ends_while_the_database_is_away_is_recorded(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    with serving(tmp_path, database=postgres_url) as server:
        with server.client(server.add_key("patient"), "/v1") as client:
            assert client.post("/sessions", json={"id": "a"}).status_code == 201
            path = start(client, "/sessions/a", "import time; time.sleep(1)")
            postgres.stop()
            wait_for(lambda: _status(client) == 503)
            wait_for(lambda: "they cannot be written" in "".join(server.lines))
            postgres.start()
            wait_for(lambda: client.get(path).json()["status"] == "ended")
            wait_for(lambda: "are written again" in "".join(server.lines))
            (record,) = runs_of(server, "patient", 3)
            assert (f"/runs/{record['run']}", record["outcome"]) == (path, "ok")
        assert "secret" not in "".join(server.lines)
