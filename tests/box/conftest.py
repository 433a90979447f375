"""Boxes for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from cellblock import Sandbox
from cellblock.sandbox.probe import find_sub_ids, unavailable_reason


@pytest.fixture(scope="session")
def needs_sandbox() -> None:
    """Skip the test where there is no sandbox."""
    if reason := unavailable_reason():
        pytest.skip(f"the sandbox is not available: {reason}")


@pytest.fixture(scope="session")
def needs_users(needs_sandbox: None) -> None:
    """Skip the test where a box cannot have several users."""
    if isinstance(found := find_sub_ids(), str):
        pytest.skip(f"one user: {found}")


@pytest.fixture
def box() -> Iterator[Sandbox]:
    """Yield a box with several users, which starts when it is first used."""
    box = Sandbox(users=True)
    yield box
    asyncio.run(box.close())
