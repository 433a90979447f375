"""MCP as a door of the server, with API keys."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import uvicorn
from httpx2 import AsyncClient
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from cellblock.server.app import create_app
from cellblock.server.doors.mcp.http import McpDoor
from cellblock.server.http.services import Services
from cellblock.server.keys.key_store import KeyStore
from cellblock.server.sessions.store import SessionStore
from cellblock.server.settings import ServedSettings
from cellblock.server.state.database import open_database
from cellblock.server.state.journal import StateJournal
from tests.server.mcp.mcp_client import call, run_async, run_code
from tests.server.mcp.test_command import HELLO

ACCEPT = {"Accept": "application/json, text/event-stream"}


def test_requests_without_a_valid_key_are_refused(tmp_path: Path) -> None:
    async def check() -> None:
        async with serve(tmp_path) as (url, _keys), httpx.AsyncClient() as http:
            for headers in ({}, {"Authorization": "Bearer cb_wrong"}):
                answer = await http.post(
                    url, json={"jsonrpc": "2.0", "id": 1, **HELLO}, headers={**ACCEPT, **headers}
                )
                assert answer.status_code == 401
                assert "WWW-Authenticate" in answer.headers

    run_async(check())


def test_a_session_belongs_to_the_key_that_made_it(tmp_path: Path) -> None:
    async def check() -> None:
        async with serve(tmp_path) as (url, keys):
            first, second = (keys.add(name)[1] for name in ("first", "second"))
            async with connect(url, first) as one, connect(url, second) as other:
                await run_code(one, "x = 1; open('f', 'w').close()")
                shown = await run_code(other, "print('x' in globals())")
                assert shown["stdout"] == "False\n"
                assert (await call(other, "list_files"))["files"] == []
                assert (await other.list_resources()).resources == []
                assert len((await one.list_resources()).resources) == 1

    run_async(check())


def test_the_transport_session_of_another_key_is_not_found(tmp_path: Path) -> None:
    async def check() -> None:
        async with serve(tmp_path) as (url, keys), httpx.AsyncClient() as http:
            first, second = (keys.add(name)[1] for name in ("first", "second"))
            hello = {"jsonrpc": "2.0", "id": 1, **HELLO}
            made = await http.post(url, json=hello, headers={**ACCEPT, **bearer(first)})
            assert made.status_code == 200
            session = {"Mcp-Session-Id": made.headers["mcp-session-id"]}
            listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
            for key, status in ((second, 404), (first, 200)):
                headers = {**ACCEPT, **bearer(key), **session}
                answer = await http.post(url, json=listing, headers=headers)
                assert answer.status_code == status

    run_async(check())


def test_other_doors_reach_the_same_session(tmp_path: Path) -> None:
    async def check() -> None:
        async with serve(tmp_path) as (url, keys), httpx.AsyncClient(timeout=30) as http:
            key = keys.add("both")[1]
            async with connect(url, key) as client:
                await run_code(client, "x = 'from MCP'", session_id="shared")
                answer = await http.post(
                    url.replace("/mcp", "/code/execute"),
                    params={"api-version": "2024-02-02-preview", "identifier": "shared"},
                    json={
                        "properties": {
                            "codeInputType": "inline",
                            "executionType": "synchronous",
                            "code": "print(x)",
                        }
                    },
                    headers=bearer(key),
                )
                assert answer.json()["properties"]["stdout"] == "from MCP\n"

    run_async(check())


@contextlib.asynccontextmanager
async def serve(folder: Path) -> AsyncGenerator[tuple[str, KeyStore]]:
    """Yield the URL of a server with all doors, and its keys."""
    engine = open_database(f"sqlite:///{folder}/keys.db")
    keys = KeyStore(engine)
    try:
        async with (
            StateJournal(engine, "test", 1) as journal,
            SessionStore(ServedSettings(), journal) as store,
        ):
            services = Services(store, keys)
            door = McpDoor(services)
            app = create_app(services, [door.route], door.lifespan)
            server = uvicorn.Server(
                uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
            )
            with socket.create_server(("127.0.0.1", 0)) as listener:
                serving = asyncio.create_task(server.serve([listener]))
                try:
                    yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", keys
                finally:
                    server.should_exit = True
                    await serving
    finally:
        keys.close()


@contextlib.asynccontextmanager
async def connect(url: str, key: str) -> AsyncGenerator[Client]:
    """Yield a client that sends `key`."""
    async with (
        AsyncClient(headers=bearer(key), timeout=30) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


def bearer(key: str) -> dict[str, str]:
    """Return the header with a key."""
    return {"Authorization": f"Bearer {key}"}
