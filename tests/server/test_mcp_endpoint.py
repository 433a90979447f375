"""`cellblock serve` has MCP at /mcp, for the same keys and sessions."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from .serving import Server, serving


def test_without_the_extra_the_answer_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with serving(tmp_path, is_forked=False) as server:
        for method in ("GET", "POST"):
            answer = httpx.request(method, f"{server.url}/mcp")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NotFound")
            assert "pip install 'cellblock[mcp]'" in answer.json()["error"]["message"]
    notes = [line for line in server.lines if line.startswith("cellblock: /mcp is not served")]
    assert "pip install 'cellblock[mcp]'" in notes[0]


def test_mcp_needs_a_key_and_answers_initialize(server: Server, key: str) -> None:
    pytest.importorskip("mcp")
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
