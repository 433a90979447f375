"""`cellblock run`: its options and their validation."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NoReturn

import click

from .options.settings import WORK_DIR, RunSettings
from .options.shared import check_env, common_options

_EXECUTORS = ("sandbox", "session", "local", "docker", "docker-session")


def _check_language(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is None:
        return None
    from ..languages import LANGUAGES, find_language  # needed only with --language

    if find_language(value) is None:
        known = ", ".join(language.name for language in LANGUAGES)
        raise click.BadParameter(
            f"unknown language {value}; use one of {known}", context, parameter
        )
    return value


@click.command("run")
@click.argument("file", required=False)
@click.option(
    "-c", "code", metavar="CODE", help="Run CODE. It is Python unless --language is given."
)
@click.option(
    "--executor",
    type=click.Choice(_EXECUTORS),
    default="sandbox",
    show_default=True,
    help="The executor that runs the blocks.",
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="Image for --executor docker and docker-session.  [default: python:3-slim]",
)
@click.option(
    "--language",
    metavar="NAME",
    callback=_check_language,
    help="Run the whole input as one block of this language.",
)
@common_options(60)
@click.option("--json", "as_json", is_flag=True, help="Print only the result, as JSON.")
@click.option(
    "--stream/--no-stream",
    default=True,
    show_default=True,
    help="Print output while the blocks run, or at the end.",
)
def command(**options: Any) -> int:
    """Run the code blocks of FILE, a Markdown message. If FILE is "-", or is
    missing while standard input is not a terminal, read standard input.

    A file with the suffix of a language, such as .py or .sh, is one block. The cells of a notebook
    (.ipynb) run in one session, until one fails; the file stays as it is. The output of the blocks
    goes to standard output and standard error. Notes about blocks and the files that they created
    go to standard error. The exit code is that of the last block that ran; 2 means a usage error,
    and 3 that the code could not be run.
    """
    if options["file"] is None and options["code"] is None and _has_input():
        options["file"] = "-"
    options["executor"] = _executor(options)
    settings = RunSettings(**options)
    if settings.network and settings.executor == "local":
        _fail_usage("--network does not apply to --executor local, which always has the network")
    if settings.image is not None and not settings.executor.startswith("docker"):
        _fail_usage("--image applies only to --executor docker and docker-session")
    check_env(settings.env, settings.executor)
    return _read_and_run(settings)


def _executor(options: Mapping[str, Any]) -> str:
    """Return the name of the executor. The cells of a notebook share their variables."""
    name: str = options["executor"]
    if options["language"] is not None or not str(options["file"]).endswith(".ipynb"):
        return name
    context = click.get_current_context()
    if context.get_parameter_source("executor") is click.core.ParameterSource.DEFAULT:
        return "docker-session" if options["image"] else "session"
    if not name.endswith("session"):
        _fail_usage(
            "the cells of a notebook share variables: use --executor session or docker-session"
        )
    return name


def _read_and_run(settings: RunSettings) -> int:
    if (settings.file is None) == (settings.code is None):
        _fail_usage("give either a FILE or -c CODE, or a message on standard input")
    # Imported here, so that --help and usage errors stay fast.
    from .options.early_launch import launch_sandbox

    launch_sandbox(settings, WORK_DIR if settings.work_dir is None else settings.work_dir)
    import asyncio

    from ..blocks import CodeBlock
    from .input_file import InputError, read_blocks, select_runnable

    try:
        if settings.code is not None:
            blocks = [CodeBlock(settings.code, settings.language or "python")]
        else:
            blocks = read_blocks(str(settings.file), settings.language)
        blocks, skipped = select_runnable(blocks)
    except InputError as error:
        _fail_usage(str(error))
    from .run_blocks import execute

    return asyncio.run(execute(blocks, settings, skipped))


def _has_input() -> bool:
    """Return True if standard input is open and no terminal."""
    return sys.stdin is not None and not sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison] - can be None


def _fail_usage(message: str) -> NoReturn:
    click.get_current_context().fail(message)
