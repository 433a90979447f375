"""`cellblock repl`: its options, and the choice between terminal and pipe."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..options.settings import ReplSettings
from ..options.shared import common_options


@click.command("repl")
@common_options(None)
@click.option(
    "--preload",
    multiple=True,
    metavar="MODULE",
    help="Import a module before the session starts. Can be given several times.",
)
@click.option(
    "--open",
    "open_images",
    is_flag=True,
    help="Also open images on the screen. Images are always saved.",
)
@click.option(
    "--images",
    "image_folder",
    metavar="FOLDER",
    default="images",
    show_default=True,
    help="Folder for displayed images.",
)
def command(**options: Any) -> int:
    """Start an interactive Python session in a sandbox.

    Variables, imports and files are kept from block to block. If a block crashes its process, the
    session is restored. Ctrl-C ends the running block, Ctrl-D ends the session, and :help lists the
    commands. If standard input is not a terminal, its statements are run one after another, and the
    exit code is that of the last one that failed.
    """
    # Imported here, so that --help and usage errors stay fast.
    import asyncio

    from .loop import run_at_terminal, run_from_pipe

    # sys.stdin is None if standard input is closed.
    is_terminal = sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison] - can be None
    run = run_at_terminal if is_terminal else run_from_pipe
    return asyncio.run(run(ReplSettings(executor="session", **options)))
