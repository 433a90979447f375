"""A kernel that the tests of one file share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.live_kernel import LiveKernel, install, jupyter_folders, open_kernel


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the kernel `cellblock` in a folder of its own. Yield a folder for notebooks."""
    folder = tmp_path_factory.mktemp("jupyter")
    with jupyter_folders(folder):
        install()
        yield folder


@pytest.fixture(scope="module")
def kernel(kernels: Path) -> Iterator[LiveKernel]:
    """Yield a running kernel."""
    with open_kernel(kernels / "notebooks") as running:
        yield running
