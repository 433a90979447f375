"""The command `cellblock`.

A subcommand's module is imported when it is used, and what runs code when code is run: `--help` and a mistyped option
are answered at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import click

from .. import __version__
from ..errors import CellblockError

_COMMANDS = {
    "clean": "Remove control groups and containers that dead owners left.",
    "doctor": "Tell what the sandbox can guarantee on this machine, and which container engine there is.",
    "repl": "Talk with a live Python session in a sandbox.",
    "run": "Run the code blocks of a message, or a program.",
}
_EXIT_FAILED, _EXIT_USAGE, _EXIT_INTERRUPTED = 3, 2, 130


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        return import_module(f"{__name__}.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=_Commands, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def _cellblock() -> None:
    """Run the code that language-model agents write: contained, exact, fast."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Be the command: ends the process, with the code of what was run.

    2 means bad usage, 3 that we failed, 130 and 143 that Ctrl-C and SIGTERM ended it. `arguments` None: the
    process's own.
    """
    try:
        code = _cellblock.main(arguments, prog_name="cellblock", standalone_mode=False)
    except click.UsageError as error:
        code = _say(_usage(error), _EXIT_USAGE)
    except CellblockError as error:
        code = _say(str(error), _EXIT_FAILED)
    except (
        OSError
    ) as error:  # a full disk behind our output, say; a closed pipe is click's, who ends quietly
        code = _say(str(error), _EXIT_FAILED)
    except click.Abort:
        code = _EXIT_INTERRUPTED
    sys.exit(code)


def _usage(error: click.UsageError) -> str:
    """Give one line that says what is wrong, and where to read more."""
    command = error.ctx.command_path if error.ctx else "cellblock"
    said = " ".join(error.format_message().split()).rstrip(".")
    return f"{said}; see {command} --help"


def _say(message: str, code: int) -> int:
    click.echo(f"cellblock: {message}", err=True)
    return code
