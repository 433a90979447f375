"""Fixtures of the tests of spans."""

from __future__ import annotations

import pytest
from opentelemetry import trace

from tests.tracing.recorded import Recorded

SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Return an SDK that is configured during the test. A program can configure one only once."""
    recorded = Recorded()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", recorded.provider)
    monkeypatch.delenv(SWITCH, raising=False)
    return recorded


@pytest.fixture
def with_content(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Return the SDK of `recorded`. Spans have content."""
    monkeypatch.setenv(SWITCH, "true")
    return recorded
