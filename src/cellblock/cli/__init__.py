"""The command `cellblock`.

The module of a subcommand is imported when the subcommand is used, and executors are imported when
code is run. This keeps `--help` and usage errors fast.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click
from click.exceptions import NoArgsIsHelpError

from .. import __version__
from ..errors import CellblockError, SandboxUnavailable

_COMMANDS = {
    "audit": "Print who ran what and when on the server.",
    "batch": "Judge many programs, and continue where a stopped batch ended.",
    "chat": "Let a model write code, approve it, and see it run.",
    "clean": "Remove control groups, sockets and containers left behind by crashed processes.",
    "compat": "Check what scripts and notebooks written for AutoGen need.",
    "doctor": "Check what the sandbox guarantees here, and find the container engine.",
    "kernel": "Install Jupyter kernels that run notebooks in a sandbox.",
    "keys": "Add, list and revoke the API keys of the server.",
    "mcp": "Serve a sandbox to MCP clients, such as desktop apps and editors.",
    "repl": "Start an interactive Python session in a sandbox.",
    "run": "Run the code blocks of a message, or a program.",
    "serve": "Serve sandboxed sessions to clients of code interpreters.",
    "shell": "Type commands into a sandbox that is kept.",
}
# Instead of the advice of `SandboxUnavailable`, which names Python's parameters.
_WEAKER_PROTECTION = (
    "Cellblock never silently weakens the protection: --executor docker runs the blocks in a "
    "container, --executor local without any protection."
)
# Objects. The imports of a command create more than Python's default of 700, and no garbage.
_GC_THRESHOLD = 50_000
_EXIT_FAILED, _EXIT_USAGE, _EXIT_INTERRUPTED = 3, 2, 130


class _LazyGroup(click.Group):
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
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def _cellblock(context: click.Context) -> None:
    """Run the code that language-model agents write: contained, exact, fast."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with `arguments` (default: `sys.argv`) and exit with its exit code.

    Exit code 2 means a usage error, 3 that the code could not be run, 130 and 143 that Ctrl-C or
    SIGTERM ended the command.
    """
    gc.set_threshold(_GC_THRESHOLD)
    try:
        code = _cellblock.main(arguments, prog_name="cellblock", standalone_mode=False)
    except NoArgsIsHelpError as error:  # a group without a command: help is not an error
        click.echo(error.ctx.get_help())
        code = 0
    except click.UsageError as error:
        code = _report_error(_usage_message(error), _EXIT_USAGE)
    except SandboxUnavailable as error:
        message = str(error).removesuffix(error.advice)
        code = _report_error(message + _WEAKER_PROTECTION, _EXIT_FAILED)
    except CellblockError as error:
        code = _report_error(str(error), _EXIT_FAILED)
    except OSError as error:  # such as a full disk; click handles a closed pipe itself
        code = _report_error(str(error), _EXIT_FAILED)
        _discard_unwritten_output()
    except click.Abort:
        code = _EXIT_INTERRUPTED
    gc.freeze()  # Python would look for garbage in all modules while it exits
    sys.exit(code)


def _usage_message(error: click.UsageError) -> str:
    """Return one line with the problem and the help command."""
    command = error.ctx.command_path if error.ctx else "cellblock"
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{message}; see {command} --help"


def _report_error(message: str, code: int) -> int:
    click.echo(f"cellblock: {message}", err=True)
    return code


def _discard_unwritten_output() -> None:
    """Discard what standard output refuses, which Python would write again at exit."""
    if not sys.stdout:  # closed from the start
        return
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), sys.stdout.fileno())
