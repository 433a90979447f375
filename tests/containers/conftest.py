"""Rootless engines, which the files of this folder share. Tests may be coroutines."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import pytest

from tests.backends.conftest import pytest_pyfunc_call
from tests.containers import rootless_engine
from tests.containers.docker_engine import Engine

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture(scope="session")
def rootless_engines() -> Iterator[Callable[[str], Engine]]:
    """Yield a function that returns the engine "docker_engine" or "podman_engine"."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def start(name: str) -> Engine:
            return stack.enter_context(getattr(rootless_engine, name)())

        yield start
