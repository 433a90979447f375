"""Jupyter kernels for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.executors.jupyter import kernels


@pytest.fixture(scope="module")
def kernel_specs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install kernels for the tests of a module, which then use neither others nor the home."""
    with pytest.MonkeyPatch.context() as patch:
        kernels.install_kernel_specs(patch, tmp_path_factory.mktemp("jupyter"))
        yield
