"""Fixtures: a pool on loopback for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import AzureContainerCodeExecutor
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


@pytest.fixture
def executor(pool: Pool, tmp_path: Path) -> AzureContainerCodeExecutor:
    """Return an executor whose work folder is `tmp_path`, and which is not started."""
    return AzureContainerCodeExecutor(pool.url, "token", work_dir=tmp_path)
