"""A session for each test."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest


@pytest.fixture
def session(api: httpx.Client) -> Iterator[str]:
    """Yield the path of a new session, which ends with the test."""
    made = api.post("/sessions")
    assert made.status_code == 201
    path = f"/sessions/{made.json()['id']}"
    yield path
    api.delete(path)
