"""`cellblock chat`: its options and their validation."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from ...text_files import UnreadableText, decode_text
from ..options.shared import check_env, common_options
from .settings import LATEST, ChatSettings

_EXECUTORS = ("session", "sandbox", "docker-session", "docker", "local")
_MODES = ("always", "once", "risky", "never")
_SUFFIXES = (".md", ".ipynb")


def _check_save(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    if value is not None and Path(value).suffix not in _SUFFIXES:
        raise click.BadParameter(
            f"{value} must end with {' or '.join(_SUFFIXES)}", context, parameter
        )
    return value


def _parse_price(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[float, float] | None:
    if value is None:
        return None
    try:
        read, written = map(float, value.split("/"))
        if not (0 <= read < math.inf and 0 <= written < math.inf):
            raise ValueError(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is not two prices such as 2.5/10", context, parameter
        ) from None
    return read, written


@click.command("chat")
@click.argument("task", required=False)
@click.option(
    "--model",
    envvar="CELLBLOCK_MODEL",
    metavar="NAME",
    help="The model that writes the code.  [default: $CELLBLOCK_MODEL]",
)
@click.option(
    "--base-url",
    envvar="OPENAI_BASE_URL",
    metavar="URL",
    help="A server that speaks OpenAI's protocol, such as Ollama or vLLM.",
)
@click.option(
    "--context-window",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="How much the model can read and write, if it is not known here.",
)
@click.option(
    "--price",
    metavar="IN/OUT",
    callback=_parse_price,
    help="Dollars for a million tokens read and written, if the model is not known here.",
)
@click.option(
    "--executor",
    type=click.Choice(_EXECUTORS),
    default="session",
    show_default=True,
    help="The executor that runs the code.",
)
@click.option(
    "--image",
    metavar="IMAGE",
    help="Image for --executor docker and docker-session.  [default: python:3-slim]",
)
@click.option(
    "--approve",
    type=click.Choice(_MODES),
    default="always",
    show_default=True,
    help="When to ask before code runs: always, once, if it looks risky, or never.",
)
@click.option(
    "--max-turns",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How often the model may answer before it is your turn.",
)
@click.option(
    "--save",
    metavar="FILE",
    callback=_check_save,
    help="Save the conversation after each step, as Markdown (.md) or notebook (.ipynb).  "
    "[default: a file in your state folder]",
)
@click.option("--no-save", is_flag=True, help="Do not save the conversation.")
@click.option(
    "--resume",
    metavar="[FILE]",
    is_flag=False,
    flag_value=LATEST,
    help="Go on with a saved conversation, without FILE with the latest one of this folder; it is "
    "saved there, unless --save names another file.",
)
@click.option(
    "--images",
    "image_folder",
    metavar="FOLDER",
    default="images",
    show_default=True,
    help="Folder for plots that a session displays.",
)
@click.option(
    "--demo",
    is_flag=True,
    help="Play a recorded conversation, without a model. The code really runs.",
)
@common_options(60)
def command(**options: Any) -> int:
    """Let a model write code for TASK, run the code, and answer.

    The answer is shown while it arrives, and the code before it runs: y runs it, n refuses it, e
    edits it, a runs all further code. Then it is your turn again. Ctrl-C stops the model or the
    code, Ctrl-D ends the conversation. Without TASK, type it, or pass it on standard input.

    If standard input is not a terminal, the command ends with the answer. Its exit code is 0 then,
    1 if there is none after --max-turns, 2 after a usage error, and 3 if the model or the code
    could not be reached.
    """
    settings = ChatSettings(**options)
    _check_combinations(settings)
    # Imported here, so that --help and usage errors stay fast.
    import asyncio

    from .command import run_at_terminal, run_once
    from .project_folder import with_project_folder

    if has_terminal():
        return asyncio.run(run_at_terminal(with_project_folder(settings, os.environ)))
    return asyncio.run(run_once(_with_task(settings)))


def _check_combinations(settings: ChatSettings) -> None:
    if settings.network and settings.executor == "local":
        _fail_usage("--network does not apply to --executor local, which always has the network")
    if settings.image is not None and not settings.executor.startswith("docker"):
        _fail_usage("--image applies only to --executor docker and docker-session")
    check_env(settings.env, settings.executor)
    if settings.demo and (settings.task is not None or settings.resume is not None):
        _fail_usage("--demo plays its own conversation: pass neither TASK nor --resume")
    if settings.save is not None and settings.no_save:
        _fail_usage("--save and --no-save exclude each other")
    is_file = settings.resume is not None and settings.resume != LATEST
    if is_file and Path(str(settings.resume)).suffix not in _SUFFIXES:
        _fail_usage(
            f"--resume needs a file that ends with {' or '.join(_SUFFIXES)}; without a file, "
            "pass it after TASK"
        )
    if not has_terminal() and not settings.demo and settings.approve in ("always", "once"):
        _fail_usage(
            "code cannot be approved, because standard input or output is not a terminal: "
            "pass --approve never, or --approve risky to refuse what looks risky"
        )


def _with_task(settings: ChatSettings) -> ChatSettings:
    """Return `settings` with the task on standard input, if there is no other."""
    from dataclasses import replace

    if settings.task is not None or settings.demo:
        return settings
    task = ""
    if sys.stdin is not None and not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison] - can be None
        try:
            task = decode_text(sys.stdin.buffer.read(), "standard input")
        except UnreadableText as error:
            _fail_usage(str(error))
    if not task.strip():
        _fail_usage("there is no task: pass TASK, or the text on standard input")
    return replace(settings, task=task)


def has_terminal() -> bool:
    """Return True if both standard input and standard output are a terminal."""
    # They are None if they are closed.
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))  # pyright: ignore[reportUnnecessaryComparison]


def _fail_usage(message: str) -> NoReturn:
    click.get_current_context().fail(message)
