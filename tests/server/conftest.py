"""A server for all files of a process, and a key for the tests of each file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from .serving import Server, serving


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server with small limits of size."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, "--max-body", "1M", "--max-file", "8M", "--timeout", "20") as one:
        yield one


@pytest.fixture(scope="module")
def server(shared_server: Server) -> Server:
    """Return the shared server, with the lines that it writes from now on."""
    return replace(shared_server, first_line=len(shared_server.all_lines))


@pytest.fixture(scope="module")
def key(server: Server, request: pytest.FixtureRequest) -> str:
    """Return the key of most tests of a file."""
    return server.add_key(f"tests of {request.path.stem} in {request.path.parent.name}")


@pytest.fixture
def client(server: Server, key: str) -> Iterator[httpx.Client]:
    """Yield a client of a pool below a prefix."""
    with server.client(key, "/subscriptions/s/resourceGroups/g/sessionPools/p") as one:
        yield one
