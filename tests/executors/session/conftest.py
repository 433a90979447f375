"""Fixtures: servers whose sessions the tests of this folder use, one of each per process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import Limits, SandboxSessionServer
from tests.executors.session.data_stack import PACKAGES
from tests.executors.session.live_session import open_server


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
