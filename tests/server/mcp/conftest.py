"""Servers that the tests of a process share, each test with a session of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from tests.server.mcp.mcp_client import STDIO, Connection, Tools, User, using

Pool = Callable[..., Tools]


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Yield a function that returns the tools of a server with these options."""
    known = dict[tuple[object, ...], Tools]()
    with contextlib.ExitStack() as stack:

        def find(connection: Connection, *options: str) -> Tools:
            place = connection, *options
            if place not in known:
                known[place] = stack.enter_context(using(connection, *options, user=User()))
            found = known[place]
            found.user.answers, found.user.questions = [], []
            return replace(found, session=uuid4().hex, _used=set())

        yield find


@pytest.fixture(params=[STDIO], ids=str)
def tools(pool: Pool, request: pytest.FixtureRequest) -> Iterator[Tools]:
    """Yield the tools of a server that asks no questions."""
    found = pool(request.param)
    yield found
    found.end()


@pytest.fixture(params=[STDIO], ids=str)
def confirmed(pool: Pool, request: pytest.FixtureRequest) -> Iterator[Tools]:
    """Yield the tools of a server that asks its user before code runs."""
    found = pool(request.param, "--confirm")
    yield found
    found.end()
