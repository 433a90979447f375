"""Fixtures: servers whose sessions the tests of this folder use, one of each per process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import Limits, SandboxSessionServer
from tests.executors.session.box_client import BoxClient
from tests.executors.session.data_stack import PACKAGES
from tests.executors.session.live_session import LiveSession, open_server, open_session


@pytest.fixture(scope="session")
def shared() -> Iterator[SandboxSessionServer]:
    """Yield a server for sessions that need some memory, processes and checkpoints."""
    # Without control groups, a memory limit would forbid System V shared memory.
    limits = Limits(memory_bytes=None, processes=200, tmp_bytes=64 << 20, checkpoints=6)
    with open_server(limits=limits) as running:
        yield running


@pytest.fixture(scope="session")
def strict_server() -> Iterator[SandboxSessionServer]:
    """Yield a server whose sessions reach their limits soon."""
    limits = Limits(
        memory_bytes=256 << 20,
        processes=60,
        tmp_bytes=64 << 20,
        output_bytes=1 << 20,
        written_bytes=256 << 20,
    )
    with open_server(limits=limits) as running:
        yield running


@pytest.fixture(scope="session")
def data_server() -> Iterator[SandboxSessionServer]:
    """Yield a server whose sessions have the packages of what analysts use."""
    limits = Limits(memory_bytes=None, processes=300, tmp_bytes=256 << 20, checkpoints=6)
    with open_server(packages=PACKAGES, limits=limits) as running:
        yield running


@pytest.fixture
def keeping(shared: SandboxSessionServer) -> Iterator[LiveSession]:
    """Yield a session that keeps the processes of its blocks."""
    with open_session(shared, keep_processes=True) as live:
        yield live


@pytest.fixture
def hurried(shared: SandboxSessionServer) -> Iterator[LiveSession]:
    """Yield a session with a time limit of one second."""
    with open_session(shared, timeout=1) as live:
        yield live


@pytest.fixture(scope="module")
def module_box(
    shared: SandboxSessionServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BoxClient]:
    """Yield a box that the tests of a module share."""
    with open_session(shared, tmp_path_factory.mktemp("work")) as live:
        yield BoxClient(live)


@pytest.fixture
def box(shared: SandboxSessionServer) -> Iterator[BoxClient]:
    """Yield the box of a new session."""
    with open_session(shared) as live:
        yield BoxClient(live)
