"""A Python in which AutoGen 0.2.40 is installed, for tests that run it beside Cellblock."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cellblock.environments.virtualenv import environment_for, python_of

AUTOGEN_02 = ("autogen-agentchat==0.2.40",)


@pytest.fixture(scope="session")
def autogen_02_python() -> Path:
    """Return a Python with AutoGen 0.2.40 alone. It is in the cache of environments."""
    return python_of(asyncio.run(environment_for(AUTOGEN_02)))
