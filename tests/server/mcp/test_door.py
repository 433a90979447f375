"""MCP as a door of the server, with API keys."""

from __future__ import annotations

import httpx

from tests.server.mcp.mcp_client import ACCEPT, HELLO, using_door
from tests.server.serving import Server, run_old


def test_requests_without_a_valid_key_are_refused(server: Server) -> None:
    for headers in ({}, {"Authorization": "Bearer cb_wrong"}):
        answer = httpx.post(f"{server.url}/mcp", json=HELLO, headers={**ACCEPT, **headers})
        assert answer.status_code == 401
        assert "WWW-Authenticate" in answer.headers


def test_a_session_belongs_to_the_key_that_made_it(server: Server, key: str) -> None:
    second = server.add_key("second of mcp")
    with using_door(server, key) as one, using_door(server, second) as other:
        one.run("x = 1; open('f', 'w').close()")
        assert other.run("print('x' in globals())")["stdout"] == "False\n"
        assert other.data("list_files")["files"] == other.uris() == []
        assert len(one.uris()) == 1


def test_the_transport_session_of_another_key_is_not_found(server: Server, key: str) -> None:
    with server.client(key) as one, server.client(server.add_key("third of mcp")) as other:
        made = one.post("/mcp", json=HELLO, headers=ACCEPT)
        assert made.status_code == 200
        headers = {**ACCEPT, "Mcp-Session-Id": made.headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        for client, status in ((other, 404), (one, 200)):
            assert client.post("/mcp", json=listing, headers=headers).status_code == status


def test_other_doors_reach_the_same_session(server: Server, key: str, client: httpx.Client) -> None:
    with using_door(server, key) as tools:
        tools.run("x = 'from MCP'", session_id="shared")
    assert run_old(client, "print(x)", "shared").json()["properties"]["stdout"] == "from MCP\n"
