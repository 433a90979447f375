"""`cellblock doctor`: test what the sandbox guarantees here, and find the container engine."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

import click

from ..sandbox.guarantees import Guarantee
from ..sandbox.probe import unavailable_reason

_COLOURS = {
    "enforced": "green",
    "partly": "yellow",
    "off": "yellow",
    "given by policy": "yellow",
    "not possible here": "red",
}
_MIN_TEXT_WIDTH = 30  # characters in the third column


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> int:
    """Check what the sandbox guarantees on this machine, and find the container engine.

    For each guarantee that is missing, print what to do. The exit code is 0 if the full sandbox can
    be started here, else 1.
    """
    import asyncio

    from ..containers.report import engine_report, format_engine_report
    from ..executors.command_line.sandbox import (
        SandboxCommandLineCodeExecutor,  # `doctor --help` does without
    )

    engine = asyncio.run(engine_report())
    guarantees, reason = SandboxCommandLineCodeExecutor().guarantees(), unavailable_reason()
    if as_json:
        found = {
            "full_sandbox": not reason,
            "reason": reason,
            "guarantees": [guarantee.to_dict() for guarantee in guarantees],
            "containers": engine,
        }
        click.echo(json.dumps(found, indent=2))
    else:
        for line in table_rows(guarantees, _terminal_width()):
            click.echo(line)
        click.echo(f"\n{format_engine_report(engine)}")
        ability = f"cannot be started here. {reason}" if reason else "can be started here."
        click.echo(f"The full sandbox {ability}")
    return 1 if reason else 0


def table_rows(guarantees: Sequence[Guarantee], width: int | None) -> Iterator[str]:
    """Yield the lines of a table of `guarantees`: property, level, and mechanism or advice.

    The third column is wrapped at `width` characters; None means no wrapping.
    """
    name_width = max(len(guarantee.property) for guarantee in guarantees)
    level_width = max(map(len, _COLOURS))
    indent = " " * (name_width + level_width + 4)
    for guarantee in guarantees:
        text = _details(guarantee)
        room = None if width is None else max(width - len(indent), _MIN_TEXT_WIDTH)
        first, *rest = [text] if room is None else textwrap.wrap(text, room, break_long_words=False)
        level = click.style(f"{guarantee.level:<{level_width}}", fg=_COLOURS[guarantee.level])
        yield f"{guarantee.property:<{name_width}}  {level}  {first}"
        yield from (f"{indent}{line}" for line in rest)


def _details(guarantee: Guarantee) -> str:
    if guarantee.level == "enforced" or not guarantee.advice:
        return guarantee.mechanism
    return f"{guarantee.mechanism}. {guarantee.advice}"


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None
