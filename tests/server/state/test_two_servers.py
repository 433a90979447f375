"""Two servers on one database: keys, quotas, usage and the audit log are those of both."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from cellblock.server.owners import Quotas
from tests.server.console.visiting import visiting
from tests.server.rest.requesting import FOREVER, run, start, wait_for
from tests.server.serving import Server, run_old, serving

from .postgresql import PostgresServer
from .reading import read_audit, read_usage

Pair = tuple[Server, Server]


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a database for all tests of the file."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('state')}/server.db"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    postgres.execute("CREATE DATABASE two_servers")
    return postgres.url("two_servers")


@pytest.fixture(scope="module")
def servers(database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Yield two servers on one database."""
    folder = tmp_path_factory.mktemp("servers")
    with (
        serving(folder, "--name", "one", database=database) as one,
        serving(folder, "--name", "two", database=database) as two,
    ):
        yield one, two


@contextlib.contextmanager
def _clients(servers: Pair, key: str) -> Generator[list[httpx.Client]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(server.client(key, "/v1")) for server in servers]


def _status(client: httpx.Client) -> int:
    return client.get("/sessions").status_code


def test_a_key_works_on_both_at_once_until_it_is_revoked(servers: Pair) -> None:
    key = servers[0].add_key("shared")
    with _clients(servers, key) as clients:
        assert list(map(_status, clients)) == [200, 200]
        servers[1].keys.revoke("shared")
        for client in clients:
            wait_for(lambda client=client: _status(client) == 401)


def test_cpu_seconds_of_both_count_for_a_quota(servers: Pair) -> None:
    key = servers[0].add_key("short", Quotas(cpu_seconds_a_day=0.4))
    code = "import time\nend = time.process_time() + 0.25\nwhile time.process_time() < end: pass"
    with _clients(servers, key) as (one, two):
        for client in (one, two):
            assert client.post("/runs", json={"code": code}).status_code == 200
        for client in (one, two):
            wait_for(lambda client=client: _refusal(client) == "TooManyRequests")


def _refusal(client: httpx.Client) -> str:
    answer = client.post("/runs", json={"code": "1"})
    return "" if answer.status_code == 200 else answer.json()["error"]["code"]


def test_usage_adds_up_and_each_run_is_recorded_once(servers: Pair, database: str) -> None:
    key = servers[0].add_key("busy")
    with _clients(servers, key) as clients, ThreadPoolExecutor(8) as pool:
        jobs = [(client, number) for number in range(10) for client in clients]
        infos = list(pool.map(_run_one, jobs))
    used = wait_for(lambda: _used(database, "busy", runs=len(infos)))
    cpu_seconds = sum(info["result"]["usage"]["cpu_seconds"] for info in infos)
    assert used["cpu_seconds"] == pytest.approx(cpu_seconds, abs=0.001)
    records = read_audit(database, "--key", "busy")
    runs = [record for record in records if record["action"] == "run"]
    assert sorted(record["run"] for record in runs) == sorted(info["id"] for info in infos)
    assert {record["server"] for record in runs} == {"one", "two"}
    outcomes = {record["run"]: record["outcome"] for record in runs}
    assert outcomes == {info["id"]: info["result"]["outcome"] for info in infos}
    assert used["run_seconds"] == pytest.approx(sum(record["seconds"] for record in runs))


def _run_one(job: tuple[httpx.Client, int]) -> dict[str, Any]:
    client, number = job
    answer = client.post("/runs", json={"code": f"print({number}); assert {number} != 3"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _used(database: str, key: str, runs: int) -> dict[str, Any] | None:
    """Return what a key has used today, once `runs` are counted."""
    found = read_usage(database, "--key", key)
    return found[-1] if found and found[-1]["runs"] >= runs else None


def test_records_name_door_session_language_and_outcome(servers: Pair, database: str) -> None:
    with servers[0].client(servers[0].add_key("doors")) as client:
        assert client.post("/v1/sessions", json={"id": "mine"}).status_code == 201
        run(client, "/v1/sessions/mine", "private = 1")
        run(client, "/v1/sessions/mine", "echo private; exit 3", language="sh")
        run(client, "/v1", "while True: pass", timeout_seconds=1)
        cancelled = start(client, "/v1/sessions/mine", FOREVER)
        client.post(f"/v1{cancelled}/cancel")
        for command in ("true", "false"):
            client.post("/v1/sessions/mine/commands", json={"command": command})
        run_old(client, "1", "other")
        client.post("/run_code", json={"code": "print(1)", "language": "python"})
        client.post("/execute", json={"generated_code": "echo 1", "language": "shell"})
    records = wait_for(lambda: _records(database, "doors", 9))
    assert [
        (each["door"], each["action"], each.get("session"), each.get("language"), each["outcome"])
        for each in records
    ] == [
        ("rest", "run", "mine", "python", "ok"),
        ("rest", "run", "mine", "sh", "error"),
        ("rest", "run", None, "python", "timeout"),
        ("rest", "run", "mine", "python", "cancelled"),
        ("rest", "command", "mine", None, "ok"),
        ("rest", "command", "mine", None, "error"),
        ("azure", "run", "other", "python", "ok"),
        ("sandbox_fusion", "run", None, "python", "ok"),
        ("nemo_skills", "run", None, "shell", "ok"),
    ]
    assert records[2]["seconds"] >= 1
    assert set(records[0]) == {
        "time", "key_id", "key_name", "server", "door", "action", "session", "run", "language",
        "outcome", "seconds", "cpu_seconds",
    }  # fmt: skip
    assert "private" not in str(records)


def _records(database: str, key: str, count: int) -> list[dict[str, Any]] | None:
    """Return the records of what a key has run, once there are `count`."""
    found = read_audit(database, "--key", key)
    runs = [record for record in found if record["action"] in ("run", "command")]
    return runs if len(runs) >= count else None


def test_keys_that_are_added_and_revoked_are_recorded(servers: Pair, database: str) -> None:
    servers[0].add_key("short-lived")
    servers[0].keys.revoke("short-lived")
    records = read_audit(database, "--key", "short-lived")
    assert [record["action"] for record in records] == ["key.add", "key.revoke"]


def test_sessions_of_both_count_for_a_quota(servers: Pair) -> None:
    key = servers[0].add_key("few", Quotas(sessions=2))
    with _clients(servers, key) as (one, two):
        for client in (one, two):
            assert client.post("/sessions").status_code == 201
        for client, path in ((one, "/sessions"), (two, "/sessions"), (two, "/runs")):
            answer = client.post(path, json={"code": "1"} if path == "/runs" else {})
            assert answer.json()["error"]["code"] == "TooManySessions"
        (listed, _) = one.get("/sessions").json()["sessions"]
        assert one.delete(f"/sessions/{listed['id']}").status_code == 204
        wait_for(lambda: two.post("/sessions").status_code == 201)
        assert _refusal(one) == "TooManySessions"


def test_the_last_session_of_a_quota_is_made_once(servers: Pair) -> None:
    key = servers[0].add_key("single", Quotas(sessions=1))
    with _clients(servers, key) as clients, ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(_make_session, clients * 4))
        assert sorted(codes) == [201, *[429] * 7]
        assert [len(client.get("/sessions").json()["sessions"]) for client in clients] == [1, 1]


def _make_session(client: httpx.Client) -> int:
    return client.post("/sessions").status_code


def test_a_session_of_another_server_is_listed_and_refused(servers: Pair) -> None:
    key = servers[0].add_key("moving")
    with _clients(servers, key) as (one, two), servers[1].client(key) as azure:
        made = one.post("/sessions", json={"id": "mine"}).json()
        assert made["server"] is None
        (listed,) = two.get("/sessions").json()["sessions"]
        assert (listed["id"], listed["server"]) == ("mine", "one")
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


def test_the_console_names_the_server_of_a_session(servers: Pair) -> None:
    key = servers[0].add_key("watching")
    with servers[0].client(key, "/v1") as one, visiting(servers[1], key) as visitor:
        assert "On other servers" not in visitor.get("/sessions").text
        one.post("/sessions", json={"id": "over-there"})
        page = visitor.get("/sessions").text
    _, _, elsewhere = page.partition("On other servers")
    assert "over-there" in elsewhere
    assert '<td data-label="Server">one</td>' in elsewhere
    assert "/sessions/over-there" not in page


def test_sessions_are_counted_and_their_start_and_end_recorded(
    servers: Pair, database: str
) -> None:
    with servers[0].client(servers[0].add_key("starter"), "/v1") as client:
        client.post("/sessions", json={"id": "a"})
        run(client, "/sessions/a", "1")
        run(client, "", "1")
        client.delete("/sessions/a")
        client.post("/sessions", json={"id": "a"})
        records = wait_for(lambda: _actions(database, "starter", 6))
    assert [(each["action"], each.get("session"), each["outcome"]) for each in records] == [
        ("key.add", None, "ok"),
        ("session.start", "a", "ok"),
        ("run", "a", "ok"),
        ("run", None, "ok"),
        ("session.end", "a", "deleted"),
        ("session.start", "a", "ok"),
    ]
    assert records[4]["seconds"] > 0
    used = wait_for(lambda: _used(database, "starter", runs=2))
    assert used["sessions"] == 2


def _actions(database: str, key: str, count: int) -> list[dict[str, Any]] | None:
    found = read_audit(database, "--key", key)
    return found if len(found) >= count else None


class _Killed(Exception):
    """The server was killed, so it has no exit code 0."""


def test_a_killed_server_has_recorded_what_had_ended(
    servers: Pair, database: str, tmp_path: Path
) -> None:
    key, ended = servers[0].add_key("killed"), ""
    with (
        contextlib.suppress(_Killed),
        serving(tmp_path, "--name", "killed", database=database) as killed,
    ):
        with killed.client(key, "/v1") as client:
            ended = client.post("/runs", json={"code": "1"}).json()["id"]
            assert client.post("/sessions", json={"id": "a"}).status_code == 201
            start(client, "/sessions/a", FOREVER)
            wait_for(lambda: _records(database, "killed", 1))
        killed.process.kill()
        killed.process.wait()
        raise _Killed
    assert [each["run"] for each in _records(database, "killed", 1) or []] == [ended]
    with servers[1].client(key, "/v1") as client:
        taken = client.post("/sessions", json={"id": "a"})
        assert taken.json()["error"]["code"] == "SessionElsewhere"
        with servers[0].keys._engine.begin() as connection:
            old = "UPDATE servers SET seen_at = seen_at - 61 WHERE name = 'killed'"
            connection.execute(text(old))
        assert client.post("/sessions", json={"id": "a"}).status_code == 201


def test_a_server_that_replaces_a_killed_one_has_its_sessions(
    servers: Pair, database: str, tmp_path: Path
) -> None:
    key = servers[0].add_key("replaced")
    with contextlib.suppress(_Killed):
        with serving(tmp_path, "--name", "again", database=database) as killed:
            with killed.client(key, "/v1") as client:
                assert client.post("/sessions", json={"id": "a"}).status_code == 201
            killed.process.kill()
            killed.process.wait()
            raise _Killed
    with serving(tmp_path, "--name", "again", database=database) as server:
        with server.client(key, "/v1") as client:
            assert client.get("/sessions").json()["sessions"] == []
            assert client.post("/sessions", json={"id": "a"}).status_code == 201


def test_what_a_server_runs_when_it_stops_is_recorded(database: str, tmp_path: Path) -> None:
    with serving(tmp_path, "--drain", "0", database=database) as server:
        with server.client(server.add_key("stopped"), "/v1") as client:
            ended = client.post("/runs", json={"code": "1"}).json()["id"]
            assert client.post("/sessions", json={"id": "a"}).status_code == 201
            start(client, "/sessions/a", FOREVER)
    first, last = _records(database, "stopped", 2) or []
    assert (first["run"], first["outcome"]) == (ended, "ok")
    assert last["outcome"] == "stopped"


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
            (record,) = wait_for(lambda: _records(postgres_url, "patient", 1))
            assert (f"/runs/{record['run']}", record["outcome"]) == (path, "ok")
        assert "secret" not in "".join(server.lines)
