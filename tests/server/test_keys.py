"""Keys: who may use the server, and what of whom is visible to whom."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from cellblock.server.owners import Quotas

from .serving import NEW, OLD, Server, run_old


@pytest.mark.parametrize("token", [None, "cb_unknown", "x" * 10_000])
def test_a_request_without_a_valid_key_is_refused(server: Server, token: str | None) -> None:
    with server.client(token) as client:
        answer = run_old(client, "1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "Unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_revoked_key_is_refused_at_once(server: Server) -> None:
    with server.client(server.add_key("revoked")) as client:
        assert run_old(client, "1").status_code == 200
        server.keys.revoke("revoked")
        assert run_old(client, "1").status_code == 401


def test_an_expired_key_is_refused(server: Server) -> None:
    _, key = server.keys.add("expired", expires_at=1)
    with server.client(key) as client:
        assert "expired" in run_old(client, "1").json()["error"]["message"]


def test_two_keys_with_one_identifier_have_two_sessions(server: Server) -> None:
    with server.client(server.add_key("one")) as one, server.client(server.add_key("two")) as two:
        run_old(one, "secret = 1\nopen('secret.txt', 'w').write('x')", "same")
        assert run_old(two, "secret", "same").json()["properties"]["status"] == "Failure"
        params = {"api-version": OLD, "identifier": "same"}
        assert two.get("/files", params=params).json()["value"] == []
        listed = two.get("/listSessions", params={"api-version": NEW}).json()["sessions"]
        assert len(listed) == 1
        two.delete("/session", params=params)
        assert run_old(one, "secret", "same").json()["properties"]["result"] == 1


def test_the_quota_of_sessions_is_kept(server: Server) -> None:
    with server.client(server.add_key("few", Quotas(sessions=1))) as client:
        assert run_old(client, "1", "first").status_code == 200
        answer = run_old(client, "1", "second")
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "TooManySessions")
        assert int(answer.headers["retry-after"]) > 0
        client.delete("/session", params={"api-version": NEW, "identifier": "first"})
        assert run_old(client, "1", "second").status_code == 200


def test_the_quota_of_cpu_seconds_is_kept(server: Server) -> None:
    with server.client(server.add_key("short", Quotas(cpu_seconds_a_day=0.2))) as client:
        code = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
        assert run_old(client, code).status_code == 200
        answer = run_old(client, "1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "TooManyRequests")


def test_keys_are_not_in_the_database_or_the_log(server: Server, key: str, tmp_path: Path) -> None:
    with server.client(key) as client:
        run_old(client, "print('private output')  # private code")
    database = Path(str(server.keys._engine.url.database))
    for file in database.parent.glob("server.db*"):
        assert key.encode() not in file.read_bytes()
    log = "".join(server.lines)
    assert '"operation": "azure.execute"' in log
    assert key not in log
    assert "private" not in log


def test_the_command_adds_lists_and_revokes_keys(tmp_path: Path) -> None:
    def keys(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cellblock", "keys", *arguments],
            env={**os.environ, "CELLBLOCK_DATABASE": f"sqlite:///{tmp_path}/keys.db"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    assert keys("add", "me").startswith("cb_")
    assert "There is a key named 'me'" in keys("add", "me")
    assert keys("list").split()[1::2][0] == "active"
    keys("revoke", "me")
    assert keys("list").split()[1] == "revoked"
    assert (tmp_path / "keys.db").stat().st_mode & 0o077 == 0


def test_health_needs_no_key(server: Server) -> None:
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/ready").json() == {"status": "ready"}
