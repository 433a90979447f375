"""`cellblock run`: its options, and what they may be."""

from __future__ import annotations

import math
from typing import Any, NoReturn

import click

from .settings import Settings
from .sizes import parse_size

_EXECUTORS = ("sandbox", "local")


def _memory(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _seconds(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not 1 <= value < math.inf:
        raise click.BadParameter(f"{value:g} is not a number of seconds from 1 on", context, parameter)
    return value


def _language(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from ..languages import LANGUAGES, find_language  # only who names one needs the table

    if value is not None and find_language(value) is None:
        known = ", ".join(language.name for language in LANGUAGES)
        raise click.BadParameter(f"unknown language {value}; known are {known}", context, parameter)
    return value


@click.command("run")
@click.argument("file", required=False)
@click.option("-c", "code", metavar="CODE", help="Run CODE, which is Python unless --language says otherwise.")
@click.option("--executor", type=click.Choice(_EXECUTORS), default="sandbox", show_default=True, help="Where the blocks run.")
@click.option("--language", metavar="NAME", callback=_language, help="The whole input is one block of this language.")
@click.option(
    "--timeout",
    type=float,
    default=60,
    show_default=True,
    metavar="SECONDS",
    callback=_seconds,
    help="How long one block may run.",
)
@click.option("--memory", "memory_bytes", metavar="SIZE", callback=_memory, help="How much memory, such as 512M or 2G.")
@click.option("--network", is_flag=True, help="Give the sandbox this machine's network. Without it there is none.")
@click.option("--package", "packages", multiple=True, metavar="NAME", help="Install a package first. Can be repeated.")
@click.option("--work-dir", metavar="FOLDER", help="The folder that blocks share.  [default: coding]")
@click.option("--json", "as_json", is_flag=True, help="Print the result alone, as JSON.")
@click.option("--stream/--no-stream", default=True, show_default=True, help="Print output as it comes, or at the end.")
def command(**options: Any) -> int:
    """Run the code blocks of FILE, a Markdown message, or of standard input when FILE is "-".

    A file with the suffix of a language, such as .py or .sh, is one block. Output goes where the programs send it;
    notes about blocks and the files that they made go to standard error. The exit code is that of the last block that
    ran; 2 means bad usage, and 3 that the code could not be run.
    """
    settings = Settings(**options)
    if settings.network and settings.executor == "local":
        _refuse("--network is for the sandbox: the local executor has the host's network always")
    return _run(settings)


def _run(settings: Settings) -> int:
    # Only who runs code needs all this; help and bad options are answered without it.
    import asyncio

    from ..blocks import CodeBlock
    from .source import NoSource, read_blocks, runnable

    if (settings.file is None) == (settings.code is None):
        _refuse("name one FILE, or give code with -c")
    try:
        if settings.code is not None:
            blocks = [CodeBlock(settings.code, settings.language or "python")]
        else:
            blocks = read_blocks(str(settings.file), settings.language)
        blocks, remark = runnable(blocks)
    except NoSource as error:
        _refuse(str(error))
    from .execution import execute

    return asyncio.run(execute(blocks, settings, remark))


def _refuse(message: str) -> NoReturn:
    click.get_current_context().fail(message)
