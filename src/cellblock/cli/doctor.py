"""`cellblock doctor`: what the sandbox guarantees on this machine, found by trying, and which container engine there is."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

import click

from ..sandbox.guarantees import Guarantee
from ..sandbox.probe import unavailable

_COLOURS = {"enforced": "green", "partly": "yellow", "not possible here": "red"}
_NARROWEST = 30  # characters of text beside the first two columns


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(as_json: bool) -> int:
    """Tell what the sandbox guarantees on this machine, what to do for more, and which container engine there is.

    The exit code is 0 when the full sandbox can be started here, else 1.
    """
    import asyncio

    from ..containers.report import as_text, engine_report
    from ..executors.command_line.sandbox import (
        SandboxCommandLineCodeExecutor,  # `doctor --help` does without
    )

    engine = asyncio.run(engine_report())
    guarantees, reason = SandboxCommandLineCodeExecutor().guarantees(), unavailable()
    if as_json:
        found = {
            "full_sandbox": not reason,
            "reason": reason,
            "guarantees": [guarantee.to_dict() for guarantee in guarantees],
            "containers": engine,
        }
        click.echo(json.dumps(found, indent=2))
    else:
        for line in rows(guarantees, _width()):
            click.echo(line)
        click.echo(f"\n{as_text(engine)}")
        click.echo(
            f"The full sandbox {f'cannot be started here. {reason}' if reason else 'can be started here.'}"
        )
    return 1 if reason else 0


def rows(guarantees: Sequence[Guarantee], width: int | None) -> Iterator[str]:
    """Give one row for each guarantee: property, level, and what makes it hold or what to do.

    The text is wrapped below itself at `width`; `None`: never.
    """
    names = max(len(guarantee.property) for guarantee in guarantees)
    levels = max(map(len, _COLOURS))
    indent = " " * (names + levels + 4)
    for guarantee in guarantees:
        text = _text(guarantee)
        room = None if width is None else max(width - len(indent), _NARROWEST)
        first, *rest = [text] if room is None else textwrap.wrap(text, room, break_long_words=False)
        level = click.style(f"{guarantee.level:<{levels}}", fg=_COLOURS[guarantee.level])
        yield f"{guarantee.property:<{names}}  {level}  {first}"
        yield from (f"{indent}{line}" for line in rest)


def _text(guarantee: Guarantee) -> str:
    if guarantee.level == "enforced" or not guarantee.advice:
        return guarantee.mechanism
    return f"{guarantee.mechanism}. {guarantee.advice}"


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout and sys.stdout.isatty() else None
