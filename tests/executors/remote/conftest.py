"""Fixtures: a pool on loopback for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.executors.remote.pool import Pool, running_pool


@pytest.fixture(scope="module")
def shared_pool() -> Iterator[Pool]:
    """Yield a pool that the tests of a module share. Use `pool`."""
    with running_pool() as pool:
        yield pool


@pytest.fixture
def pool(shared_pool: Pool) -> Pool:
    """Return a pool without faults and seen requests."""
    shared_pool.seen.clear()
    shared_pool.faults.clear()
    shared_pool.refused_tokens.clear()
    return shared_pool
