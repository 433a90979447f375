"""The life of sessions and runs: expiry, a number of them, clients that leave, foreign pages."""

from __future__ import annotations

import resource
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from cellblock.server.owners import Overrides

from ..command_server import run_command
from .conftest import Servers
from .rest.requesting import FOREVER, run, wait_for
from .serving import OLD, Server, leaving_post, run_old, serving

_MOST = 100  # sessions; far fewer fit


def test_an_unused_session_ends(servers: Servers) -> None:
    server = servers("--idle", "1")
    with server.client(server.add_key("unused")) as client:
        assert run_old(client, "kept = 1").json()["properties"]["status"] == "Success"
        params = {"api-version": OLD, "identifier": "main"}
        wait_for(lambda: client.get("/session", params=params).status_code == 404)
        assert run_old(client, "kept").json()["properties"]["status"] == "Failure"


def test_the_server_has_a_number_of_sessions(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--max-sessions", "1") as server,
        server.client(server.add_key("a")) as one,
        server.client(server.add_key("b")) as two,
    ):
        assert run_old(one, "1").status_code == 200
        assert run_old(two, "1").status_code == 429


@pytest.mark.depends_on_user
def test_a_session_that_does_not_fit_is_refused_and_the_others_stay(tmp_path: Path) -> None:
    """What a limit of the runtime server cannot hold is refused with the limit's name."""
    with serving(tmp_path, "--max-sessions", str(_MOST)) as server:
        # For servers of sessions that start from now on: a policy of its own means a new one.
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (200, 200))
        overrides = Overrides(policy={"environment": {"A": "1"}})
        with server.client(server.add_key("full", overrides=overrides), "/v1") as client:
            count = 0
            while (answer := client.post("/sessions", json={"id": f"s{count}"})).is_success:
                run(client, f"/sessions/s{count}", f"x = {count}")
                count += 1
                assert count < _MOST
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
            assert answer.json()["error"]["code"] == "ServerFull"
            assert "RLIMIT_NOFILE" in answer.json()["error"]["message"]
            for number in range(count):
                assert run(client, f"/sessions/s{number}", "x")["stdout"] == f"{number}\n"
            client.delete("/sessions/s0").raise_for_status()
            client.delete("/sessions/s1").raise_for_status()
            assert run(client, "", "6 * 7")["stdout"] == "42\n"


def test_a_client_that_leaves_ends_its_run(server: Server, client: httpx.Client) -> None:
    query = {"api-version": OLD, "identifier": "leaver"}
    body: dict[str, Any] = {"properties": {"code": f"open('begun', 'w').close()\n{FOREVER}"}}
    path = f"/code/execute?{httpx.QueryParams(query)}"
    with leaving_post(server, client, path, body):
        wait_for(lambda: client.get("/files/content/begun", params=query).status_code == 200)
    # The session runs one code after the other.
    assert run_old(client, "6 * 7", "leaver").json()["properties"]["result"] == 42


def test_half_a_request_does_not_stop_others(server: Server, client: httpx.Client) -> None:
    with socket.create_connection(server.address) as half:
        half.sendall(b"POST /code/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert run_old(client, "6 * 7").json()["properties"]["result"] == 42


def test_without_keys_only_loopback_and_no_foreign_pages(servers: Servers) -> None:
    with servers("--no-auth").client(None) as client:
        assert run_old(client, "6 * 7").json()["properties"]["result"] == 42
        client.headers["origin"] = "https://evil.example"
        assert run_old(client, "6 * 7").status_code == 403
        del client.headers["origin"]
        client.headers["host"] = "evil.example"
        assert run_old(client, "6 * 7").status_code == 403
    done = run_command("serve", "--no-auth", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "loopback" in done.stderr
    assert "Leave out --no-auth, or use --host 127.0.0.1" in done.stderr
