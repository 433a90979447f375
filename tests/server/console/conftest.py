"""Browsers without scripts: clients with cookies that are signed in to the console."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from ..serving import Server
from .visiting import visiting


@pytest.fixture
def visitor(server: Server, key: str) -> Iterator[httpx.Client]:
    """Yield a client that is signed in with the key of most tests."""
    with visiting(server, key) as client:
        yield client


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx.Client]:
    """Yield a client that is signed in with another key."""
    with visiting(server, server.add_key(f"stranger {len(server.keys.list_keys())}")) as client:
        yield client
