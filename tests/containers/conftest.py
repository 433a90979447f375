"""Rootless engines, which the files of this folder share."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import pytest

from tests.containers import rootless_engine
from tests.containers.docker_engine import Engine


@pytest.fixture(scope="session")
def rootless_engines() -> Iterator[Callable[[str], Engine]]:
    """Yield a function that returns the engine "docker_engine" or "podman_engine"."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def start(name: str) -> Engine:
            return stack.enter_context(getattr(rootless_engine, name)())

        yield start
