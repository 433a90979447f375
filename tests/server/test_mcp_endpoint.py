"""`cellblock serve` has MCP at /mcp, for the same keys and sessions."""

from __future__ import annotations

import httpx
import pytest

from .serving import Server

pytest.importorskip("mcp")


def test_mcp_needs_a_key_and_answers_initialize(server: Server, key: str) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    headers = {"accept": "application/json, text/event-stream"}
    answer = httpx.post(f"{server.url}/mcp", json=message, headers=headers)
    assert answer.status_code == 401
    headers["authorization"] = f"Bearer {key}"
    answer = httpx.post(f"{server.url}/mcp", json=message, headers=headers)
    assert answer.status_code == 200
    assert "cellblock" in answer.text.lower()
