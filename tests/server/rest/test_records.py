"""The audit log and the usage over REST: whose, which, in pages, the same as the command's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest

from tests.server.serving import Server, serving
from tests.server.state.reading import read_audit, read_usage, records_of

from ..conftest import Servers
from .requesting import run, wait_for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server whose log has what two keys have done."""
    with serving(tmp_path_factory.mktemp("records"), "--name", "one") as one:
        for name in ("first", "second"):
            with one.client(one.add_key(name), "/v1") as client:
                client.post("/sessions", json={"id": f"of-{name}"})
                run(client, f"/sessions/of-{name}", "1")
                client.put(f"/sessions/of-{name}/files/a", content=b"123")
                client.post(f"/sessions/of-{name}/fork", json={"id": f"fork-of-{name}"})
            records_of(one, name, 6)
        yield one


@pytest.fixture
def first(server: Server) -> Iterator[httpx.Client]:
    """Yield a client with another key of its own."""
    name = f"key {len(server.keys.list_keys())}"
    with server.client(server.add_key(name), "/v1") as client:
        client.post("/sessions", json={"id": "mine"})
        wait_for(lambda: len(_records(client)) == 2)
        yield client


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    """Yield a client with the key of an administrator."""
    name = f"administrator {len(server.keys.list_keys())}"
    with server.client(server.keys.add(name, is_admin=True)[1], "/v1") as client:
        yield client


def _records(client: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = client.get("/audit", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["records"]
    return found


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in row.items() if value is not None}
    moment = datetime.fromisoformat(found["time"])
    return {**found, "time": moment.isoformat(timespec="milliseconds")}


def test_a_key_sees_its_own_records_whatever_it_asks_for(first: httpx.Client) -> None:
    own = _records(first)
    assert [each["action"] for each in own] == ["session.start", "key.add"]
    assert _records(first, key="first") == _records(first, session="of-first") == []


def test_an_administrator_gets_the_rows_of_the_command(admin: httpx.Client, server: Server) -> None:
    for query in ({"key": "first"}, {"session": "fork-of-second"}, {"action": "fork"}):
        options = [part for name, value in query.items() for part in (f"--{name}", value)]
        rows = read_audit(server.database, *options)
        assert rows
        found = [_without_nulls(each) for each in _records(admin, **query)][::-1]
        assert found == [_without_nulls(each) for each in rows]


def test_records_are_chosen_by_session_and_action(admin: httpx.Client) -> None:
    assert [each["action"] for each in _records(admin, session="of-first")] == [
        "fork", "file.upload", "run", "session.start",
    ]  # fmt: skip
    assert [each["action"] for each in _records(admin, session="fork-of-first")] == [
        "fork", "session.start",
    ]  # fmt: skip
    runs = _records(admin, action="run", key="second")
    assert [(each["session"], each["outcome"]) for each in runs] == [("of-second", "ok")]
    assert _records(admin, session="no\0such") == []


def test_records_are_chosen_by_time(admin: httpx.Client) -> None:
    found = _records(admin, key="first")
    (moment,) = (each["time"] for each in found if each["action"] == "run")
    later = [each for each in found if each["time"] >= moment]
    earlier = [each for each in found if each["time"] < moment]
    assert later
    assert earlier
    assert _records(admin, key="first", since=moment) == later
    assert _records(admin, key="first", until=moment) == earlier
    assert _records(admin, key="first", since="2020-01-01") == found
    assert _records(admin, since="2100-01-01T00:00+01:00") == []


def test_pages_have_each_record_once(admin: httpx.Client) -> None:
    found, query = list[dict[str, Any]](), {"key": "first", "limit": 2}
    while True:
        page = admin.get("/audit", params=query).json()
        assert len(page["records"]) <= 2
        found += page["records"]
        if page["next_before"] is None:
            break
        query["before"] = page["next_before"]
    assert found == _records(admin, key="first")
    assert len(found) > 4


@pytest.mark.slow
def test_parameters_that_are_not_valid_are_named(admin: httpx.Client) -> None:
    for name, value in (
        ("since", "yesterday"), ("until", "2024-13-01"), ("before", "-1"), ("before", "x"),
        ("limit", "0"), ("limit", "1001"), ("sesion", "a"),
    ):  # fmt: skip
        answer = admin.get("/audit", params={name: value})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRequest")
        assert f"'{name}' is not valid" in answer.json()["error"]["message"]


def test_usage_is_that_of_the_command_and_of_others_only_for_administrators(
    first: httpx.Client, admin: httpx.Client, server: Server
) -> None:
    rows = read_usage(server.database, "--key", "first")
    assert [(each["sessions"], each["runs"]) for each in rows] == [(2, 1)]
    assert admin.get("/usage", params={"key": "first"}).json()["usage"] == rows
    assert {"first", "second"} <= {each["key_name"] for each in admin.get("/usage").json()["usage"]}
    assert first.get("/usage", params={"key": "first"}).json()["usage"] == []
    assert [each["runs"] for each in first.get("/usage").json()["usage"]] == [0]
    assert admin.get("/usage", params={"since": "2100-01-01"}).json()["usage"] == []


def test_a_server_without_keys_has_no_records(servers: Servers) -> None:
    with servers("--no-auth").client(None, "/v1") as client:
        for path in ("/audit", "/usage"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NotFound")
