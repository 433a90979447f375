"""`cellblock run`: its options, and what they may be."""

from __future__ import annotations

from typing import Any, NoReturn

import click

from .options import common_options
from .settings import RunSettings

_EXECUTORS = ("sandbox", "session", "local", "docker", "docker-session")


def _language(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from ..languages import LANGUAGES, find_language  # only who names one needs the table

    if value is not None and find_language(value) is None:
        known = ", ".join(language.name for language in LANGUAGES)
        raise click.BadParameter(f"unknown language {value}; known are {known}", context, parameter)
    return value


@click.command("run")
@click.argument("file", required=False)
@click.option(
    "-c", "code", metavar="CODE", help="Run CODE, which is Python unless --language says otherwise."
)
@click.option(
    "--executor",
    type=click.Choice(_EXECUTORS),
    default="sandbox",
    show_default=True,
    help="What runs the blocks.",
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="The image of --executor docker and docker-session.  [default: python:3-slim]",
)
@click.option(
    "--language",
    metavar="NAME",
    callback=_language,
    help="The whole input is one block of this language.",
)
@common_options
@click.option("--json", "as_json", is_flag=True, help="Print the result alone, as JSON.")
@click.option(
    "--stream/--no-stream",
    default=True,
    show_default=True,
    help="Print output as it comes, or at the end.",
)
def command(**options: Any) -> int:
    """Run the code blocks of FILE, a Markdown message, or of standard input when FILE is "-".

    A file with the suffix of a language, such as .py or .sh, is one block. Output goes where the programs send it;
    notes about blocks and the files that they made go to standard error. The exit code is that of the last block that
    ran; 2 means bad usage, and 3 that the code could not be run.
    """
    settings = RunSettings(**options)
    if settings.network and settings.executor == "local":
        _refuse("--network is for the sandbox: the local executor has the host's network always")
    if settings.image is not None and not settings.executor.startswith("docker"):
        _refuse("--image is for --executor docker and docker-session")
    return _run(settings)


def _run(settings: RunSettings) -> int:
    # Only who runs code needs all this; help and bad options are answered without it.
    import asyncio

    from ..blocks import CodeBlock
    from .input_file import NoSource, read_blocks, runnable

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
    from .run_blocks import execute

    return asyncio.run(execute(blocks, settings, remark))


def _refuse(message: str) -> NoReturn:
    click.get_current_context().fail(message)
