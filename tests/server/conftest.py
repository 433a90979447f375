"""Servers for all files of a process, and a key for the tests of each file."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import httpx
import pytest

from tests.command_server import run_command

from .serving import Server, serving

Servers = Callable[..., Server]


@pytest.fixture(scope="session", autouse=True)
def _command_server() -> None:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    """Import what the commands need, which is no part of the price of the first test."""
    for name in ("keys", "serve"):
        assert run_command(name, "--help").returncode == 0


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Return what runs the tests that are coroutines."""
    return "asyncio"


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Yield a function that returns a server with these options, which tests share."""
    known = dict[tuple[str, ...], Server]()
    with contextlib.ExitStack() as stack:

        def find(*options: str) -> Server:
            if options not in known:
                folder = tmp_path_factory.mktemp("server")
                known[options] = stack.enter_context(serving(folder, *options))
            return replace(known[options], first_line=len(known[options].all_lines))

        yield find


@pytest.fixture(scope="module")
def server(servers: Servers) -> Server:
    """Return a server with small limits of size, and the lines that it writes from now on."""
    return servers("--max-body", "1M", "--max-file", "8M", "--timeout", "20")


@pytest.fixture(scope="module")
def key(server: Server, request: pytest.FixtureRequest) -> str:
    """Return the key of most tests of a file."""
    return server.add_key(f"tests of {request.path.stem} in {request.path.parent.name}")


@pytest.fixture
def client(server: Server, key: str) -> Iterator[httpx.Client]:
    """Yield a client of a pool below a prefix."""
    with server.client(key, "/subscriptions/s/resourceGroups/g/sessionPools/p") as one:
        yield one


@pytest.fixture
def api(server: Server, key: str) -> Iterator[httpx.Client]:
    """Yield a client of the paths below /v1."""
    with server.client(key, "/v1") as one:
        yield one
