"""Fixtures of the tests of spans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace

from cellblock import SandboxCommandLineCodeExecutor

if TYPE_CHECKING:
    from tests.tracing.recorded import Recorded

SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return what runs the tests that are coroutines."""
    return "asyncio"


@pytest.fixture(scope="module")
def executor() -> Iterator[SandboxCommandLineCodeExecutor]:
    """Yield a sandbox for all tests of a file."""
    executor = SandboxCommandLineCodeExecutor()
    asyncio.run(executor.start())
    yield executor
    asyncio.run(executor.stop())


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Return an SDK that is configured during the test. A program can configure one only once."""
    from tests.tracing.recorded import Recorded

    recorded = Recorded()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", recorded.provider)
    monkeypatch.delenv(SWITCH, raising=False)
    return recorded


@pytest.fixture
def with_content(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Return the SDK of `recorded`. Spans have content."""
    monkeypatch.setenv(SWITCH, "true")
    return recorded
