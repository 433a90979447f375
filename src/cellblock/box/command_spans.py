"""Spans of the commands of a box: the name of the program; its arguments and output on request."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from ..executors.session.base import SessionExecutor
from ..tracing import Span, is_on, span
from .output import Piece
from .results import CommandResult

_Pieces = AsyncGenerator[Piece | CommandResult, None]


def command_span(name: str, session: SessionExecutor, argv: Sequence[str]) -> Span:
    """Begin the span `name` of a command. `argv` are the program and its arguments."""
    program = os.path.basename(argv[0]) or None
    command = span(name, {**session.span_attributes(), "process.executable.name": program})
    if command.records_content:
        command.set("process.command_args", argv)
    return command


def trace_command(session: SessionExecutor, argv: Sequence[str], pieces: _Pieces) -> _Pieces:
    """Return the output and the result of a command, which happen in a span."""
    return _traced(session, argv, pieces) if is_on() else pieces


async def _traced(session: SessionExecutor, argv: Sequence[str], pieces: _Pieces) -> _Pieces:
    command = command_span("cellblock.exec", session, argv)

    def record(result: CommandResult) -> None:
        command.set("process.exit.code", result.exit_code)
        command.set("cellblock.cpu_seconds", result.usage.cpu_seconds or None)
        command.set("cellblock.peak_memory_bytes", result.usage.peak_memory_bytes or None)
        if command.records_content:
            command.set("cellblock.output", f"{result.stdout_text}{result.stderr_text}")
        if result.exit_code != 0:
            command.fail("timeout" if result.timed_out else "error")

    async with aclosing(command.stream(pieces, CommandResult, record)) as items:
        async for item in items:
            yield item
