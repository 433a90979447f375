"""A server and a key for the tests of each file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .serving import Server, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server with small limits of size."""
    folder: Path = tmp_path_factory.mktemp("server")
    with serving(folder, "--max-body", "1M", "--max-file", "8M", "--timeout", "20") as one:
        yield one


@pytest.fixture(scope="module")
def key(server: Server) -> str:
    """Return the key of most tests."""
    return server.add_key("tests")


@pytest.fixture
def client(server: Server, key: str) -> Iterator[httpx.Client]:
    """Yield a client of a pool below a prefix."""
    with server.client(key, "/subscriptions/s/resourceGroups/g/sessionPools/p") as one:
        yield one
