"""Servers and containers for the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import LocalJupyterServer
from tests.containers import docker_engine as engines


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work folder that the kernels of a module share."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def server(work: Path, kernel_specs: None) -> Iterator[LocalJupyterServer]:
    """Yield a server on this machine that the tests of a module share."""
    with LocalJupyterServer(work_dir=work) as server:
        yield server


@pytest.fixture(scope="module")
def engine() -> Iterator[engines.Engine]:
    """Yield the shared engine, which executors use meanwhile."""
    engine = engines.shared_engine()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", engine.host)
        yield engine


@pytest.fixture(scope="module")
def base(engine: engines.Engine) -> str:
    """Return the image with Python."""
    return engine.test_image("python")
