"""What `cellblock serve` writes to standard error, and what it does not tell its clients."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from cellblock.errors import BackendError, BackendLost, SessionError
from cellblock.server.http.statuses import message_of

from .serving import serving


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return all lines of a server that has answered some requests and run code."""
    with serving(tmp_path_factory.mktemp("log")) as server:
        with server.client(server.add_key("log")) as client:
            for path in ("/health", "/ready", "/openapi.json", "/nothing/here"):
                client.get(path)
            assert client.post("/v1/runs", json={"code": "import warnings; 1"}).is_success
            client.post("/v1/sessions", json={"id": "ended"})
            client.delete("/v1/sessions/ended")
            httpx.post(f"{server.url}/v1/runs")
    return server.lines


def _entries(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines if not line.startswith("cellblock: ")]


def test_all_lines_but_the_notes_at_the_start_are_json(lines: list[str]) -> None:
    notes = [line for line in lines if line.startswith("cellblock: ")]
    assert lines[: len(notes)] == notes
    assert _entries(lines)


def test_each_line_is_a_request_with_the_name_of_its_operation(lines: list[str]) -> None:
    assert [entry["operation"] for entry in _entries(lines)] == [
        "server.health",
        "server.ready",
        "rest.openapi",
        "other",
        "rest.run_once",
        "rest.create_session",
        "rest.delete_session",
        "rest.run_once",
    ]


def test_clients_do_not_see_the_servers_internals() -> None:
    text = "It wrote: Traceback (most recent call last):\n  File '/srv/cellblock/x.py', line 1"
    for error in (BackendError(text), BackendLost(text), OSError(text)):
        assert "/srv" not in message_of(error)
        assert "Traceback" not in message_of(error)
    assert message_of(SessionError("busy")) == "busy"
