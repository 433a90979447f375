"""Fixtures of the tests of models."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.local_model import local_model


@pytest.fixture(scope="session")
def local_model_url() -> Iterator[str]:
    """Yield the base URL of a real model's server. It answers one request at a time."""
    with local_model() as url:
        yield url
