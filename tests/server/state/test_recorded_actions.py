"""The audit log has what is done to sessions, files, keys and the console, through every door."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from cellblock.errors import BackendError
from cellblock.server.owners import Owner
from cellblock.server.sessions.journal import Action, recorded_action
from cellblock.server.sessions.session import HostedSession
from cellblock.server.state import journal as state_journal
from cellblock.server.state.database import open_database
from cellblock.server.state.journal import StateJournal
from tests.server.console.visiting import SAME_ORIGIN, send, visiting
from tests.server.mcp.mcp_client import using_door
from tests.server.serving import OLD, Server

from .reading import read_audit, records_of

Row = tuple[str, str, str | None, str, int | None]


def _records(server: Server, key: str, count: int) -> list[dict[str, Any]]:
    """Return the records of a key from its first action on, once there are `count` of any kind."""
    found = records_of(server, key, count)
    return [each for each in found if each["action"] not in ("key.add", "session.start")]


def _rows(server: Server, key: str, count: int) -> list[Row]:
    return [
        (
            each["door"], each["action"], each.get("session"), each["outcome"],
            each.get("size_bytes"),
        )
        for each in _records(server, key, count)
    ]  # fmt: skip


def test_rest_records_checkpoints_restores_forks_restarts_and_files(server: Server) -> None:
    with server.client(server.add_key("rest"), "/v1") as client:
        client.post("/sessions", json={"id": "a"})
        client.put("/sessions/a/files/secret-name.txt", content=b"secret content")
        client.post("/sessions/a/checkpoints", json={"name": "secret-checkpoint"})
        client.post("/sessions/a/checkpoints", json={"name": "secret-checkpoint"})
        client.post("/sessions/a/restore", json={"checkpoint": "secret-checkpoint"})
        client.post("/sessions/a/restore", json={"checkpoint": "secret-none"})
        client.post("/sessions/a/fork", json={"id": "b"})
        client.delete("/sessions/a/checkpoints/secret-checkpoint")
        client.post("/sessions/a/restart")
        client.delete("/sessions/a/files/secret-name.txt")
        client.delete("/sessions/a/files/secret-name.txt")
    records = _records(server, "rest", 13)
    assert [(each["action"], each["session"], each["outcome"]) for each in records] == [
        ("file.upload", "a", "ok"),
        ("checkpoint", "a", "ok"),
        ("checkpoint", "a", "refused"),
        ("restore", "a", "ok"),
        ("restore", "a", "refused"),
        ("fork", "a", "ok"),
        ("checkpoint.delete", "a", "ok"),
        ("restart", "a", "ok"),
        ("file.delete", "a", "ok"),
        ("file.delete", "a", "refused"),
    ]
    assert {each["door"] for each in records} == {"rest"}
    assert records[0]["size_bytes"] == len(b"secret content")
    assert [each.get("target") for each in records if "target" in each] == ["b"]
    assert "secret" not in str(records)


def test_azure_records_files_of_one_request_together(server: Server) -> None:
    with server.client(server.add_key("azure")) as client:
        query = {"api-version": OLD, "identifier": "main"}
        files = [("file", (name, b"12345")) for name in ("a", "b")]
        assert client.post("/files/upload", params=query, files=files).status_code == 200
        assert client.delete("/files/a", params=query).status_code == 204
    assert _rows(server, "azure", 4) == [
        ("azure", "file.upload", "main", "ok", 10),
        ("azure", "file.delete", "main", "ok", None),
    ]


def test_the_console_records_sign_ins_and_what_its_forms_do(server: Server) -> None:
    with visiting(server, server.add_key("visitor")) as client:
        client.post("/sign-in", data={"key": "cb_wrong"}, headers=SAME_ORIGIN)
        send(client, "/sessions", {"id": "a"})
        upload = {"file": ("name", b"123")}
        client.post("/sessions/a/files", files=upload, headers=SAME_ORIGIN)
        send(client, "/sessions/a/delete-file", {"path": "name"})
        send(client, "/sessions/a/checkpoint", {"name": "c"})
        send(client, "/sessions/a/restore", {"checkpoint": "c"})
    assert _rows(server, "visitor", 7) == [
        ("console", "sign-in", None, "ok", None),
        ("console", "file.upload", "a", "ok", 3),
        ("console", "file.delete", "a", "ok", None),
        ("console", "checkpoint", "a", "ok", None),
        ("console", "restore", "a", "ok", None),
    ]


def test_keys_that_an_administrator_adds_and_revokes_name_the_administrator(
    server: Server,
) -> None:
    info, key = server.keys.add("boss", is_admin=True)
    with visiting(server, key) as client:
        client.post("/keys", data={"name": "made here"}, headers=SAME_ORIGIN)
        made = next(each for each in server.keys.list_keys() if each.name == "made here")
        send(client, f"/keys/{made.id}/revoke", {})
    server.keys.revoke("boss")
    records = read_audit(server.database, "--key", "made here")
    assert [(each["action"], each["door"], each["by_key_id"]) for each in records] == [
        ("key.add", "console", info.id),
        ("key.revoke", "console", info.id),
    ]
    own = read_audit(server.database, "--key", "boss")
    assert all("by_key_id" not in each for each in own if each["action"].startswith("key."))


def test_mcp_records_what_its_tools_change(server: Server) -> None:
    pytest.importorskip("mcp")
    with using_door(server, server.add_key("recorded tools")) as tools:
        for tool, arguments in (
            ("write_file", {"path": "name", "content": "hello"}),
            ("checkpoint", {"name": "c"}),
            ("checkpoint", {"name": "a\nb"}),
            ("restore", {"name": "c"}),
            ("fork", {"new_session_id": "b"}),
            ("drop_checkpoint", {"name": "c"}),
            ("drop_checkpoint", {"name": "c"}),
            ("reset_session", {"keep_files": True}),
        ):
            tools.call(tool, session_id="a", **arguments)
    assert _rows(server, "recorded tools", 11) == [
        ("mcp", "file.upload", "a", "ok", 5),
        ("mcp", "checkpoint", "a", "ok", None),
        ("mcp", "checkpoint", "a", "refused", None),
        ("mcp", "restore", "a", "ok", None),
        ("mcp", "fork", "a", "ok", None),
        ("mcp", "checkpoint.delete", "a", "ok", None),
        ("mcp", "checkpoint.delete", "a", "refused", None),
        ("mcp", "restart", "a", "ok", None),
    ]


@pytest.mark.anyio
async def test_nothing_is_done_that_could_not_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_journal, "MAX_WAITING", 0)
    engine = open_database(f"sqlite:///{tmp_path}/server.db")

    async with StateJournal(engine, "one", 1) as journal:
        session = cast("HostedSession", None)  # it is not used
        with pytest.raises(BackendError, match="does not accept the audit log"):
            with recorded_action(journal, Owner("abc"), session, Action(name="restart")):
                raise AssertionError("it was done")
    engine.dispose()
