"""Spans of runs: what OpenTelemetry is told of a block or program, without its code and output."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..events import Ended, Event, Output
from ..results import CodeResult
from ..tracing import Attributes, Span, span


def trace_run(owner: Attributes, language: str, code: str = "") -> Span:
    """Begin the span of a run by the executor that `owner` describes."""
    run = span("cellblock.run", {**owner, "cellblock.language": language})
    if run.records_content:
        run.set("cellblock.code", code or None)
    return run


def record_end(run: Span, end: Ended | CodeResult, output: str = "") -> None:
    """Record how a run ended."""
    run.set("cellblock.outcome", end.outcome)
    run.set("cellblock.exit_code", end.exit_code)
    run.set("cellblock.limit", end.limit)
    run.set("cellblock.cpu_seconds", end.usage.cpu_seconds)
    run.set("cellblock.peak_memory_bytes", end.usage.peak_memory_bytes or None)
    run.set("cellblock.queue_seconds", end.usage.queue_seconds)
    if run.records_content:
        run.set("cellblock.output", output)
    if end.outcome != "ok":
        run.fail(end.outcome)


def trace_events(run: Span, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
    """Return the events of a block, which happen in the span `run` and end it."""
    kept: list[str] = []
    if run.records_content:
        events = _keep_output(events, kept)
    return run.stream(
        events, Ended, lambda end: record_end(run, end, f"{''.join(kept)}{end.message}")
    )


async def _keep_output(
    events: AsyncGenerator[Event, None], kept: list[str]
) -> AsyncGenerator[Event, None]:
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Output):
                kept.append(event.text)
            yield event
