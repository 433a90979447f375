"""Images for containers of the shared engine."""

from __future__ import annotations

import pytest

from tests.containers import docker_engine


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the image with Python, and let executors use its engine."""
    return docker_engine.use_shared_engine(monkeypatch, "python")
