"""Jupyter kernels for tests. Tests that are coroutine functions run in an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from tests.executors.jupyter import kernels


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function to its end; leave other functions to pytest."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    asyncio.run(
        test(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters})
    )
    return True


@pytest.fixture(scope="module")
def kernel_specs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install kernels for the tests of a module, which then use neither others nor the home."""
    with pytest.MonkeyPatch.context() as patch:
        kernels.install_kernel_specs(patch, tmp_path_factory.mktemp("jupyter"))
        yield
