"""Tests of this folder may be coroutines."""

from tests.backends.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
