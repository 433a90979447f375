"""`cellblock repl`: its options, and the two ways to talk with a session: at a terminal, and by a pipe."""

from __future__ import annotations

import sys
from typing import Any

import click

from .options import common_options
from .settings import Settings


@click.command("repl")
@common_options
@click.option(
    "--preload",
    multiple=True,
    metavar="MODULE",
    help="Import a module before the session. Can be repeated.",
)
@click.option(
    "--open",
    "opens",
    is_flag=True,
    help="Open pictures on the screen as well; they are saved always.",
)
def command(opens: bool, **options: Any) -> int:
    """Talk with a live Python session in a sandbox.

    Variables, imports and files stay; what the code does to its process does not end the session. Ctrl-C ends the
    cell that runs, Ctrl-D leaves; :help lists the commands. When standard input is no terminal, its statements are run
    one after the other, and the exit code is that of the last one that failed.
    """
    # Only who runs code needs all this; help and bad options are answered without it.
    import asyncio

    from .repl_loop import at_terminal, by_pipe

    is_terminal = sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison] - closed
    talk = at_terminal if is_terminal else by_pipe
    return asyncio.run(talk(Settings(executor="session", **options), opens=opens))
