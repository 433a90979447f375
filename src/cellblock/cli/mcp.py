"""`cellblock mcp`: a sandbox as a tool server for MCP clients."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import CellblockError
from .options.shared import check_env, run_options
from .options.types import Port

if TYPE_CHECKING:
    from ..server.settings import ServedSettings

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MAX_SESSIONS = 64
_SESSION_SECONDS = 24 * 3600.0
_TERMINAL_ADVICE = (
    "cellblock: waiting for an MCP client on standard input. Normally a client starts this "
    "command: see docs/mcp.md. Press Ctrl-D to end."
)


def _resolve_folders(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Return absolute paths. Refuse files, the home folder and folders above it."""
    folders = tuple(os.path.realpath(os.path.expanduser(value)) for value in values)
    for value, folder in zip(values, folders, strict=True):
        if not os.path.isdir(folder):
            raise click.BadParameter(f"{value} is not a folder", context, parameter)
        if Path.home().resolve().is_relative_to(folder):
            raise click.BadParameter(
                f"{value} is or contains your home folder, with all your files and keys. Name the "
                "folders that code needs.",
                context,
                parameter,
            )
        if folder == "/":
            raise click.BadParameter("/ is the whole machine", context, parameter)
    return folders


@click.command("mcp")
@click.option(
    "--executor",
    type=click.Choice(("sandbox", "docker")),
    default="sandbox",
    show_default=True,
    help="Where the sessions run.",
)
@click.option("--image", metavar="IMAGE", help="Image for --executor docker.")
@run_options(60)
@click.option(
    "--preload",
    multiple=True,
    metavar="MODULE",
    help="Import a module before sessions start. Can be given several times.",
)
@click.option(
    "--read",
    multiple=True,
    metavar="FOLDER",
    callback=_resolve_folders,
    help="Let code read FOLDER, at the same path. Can be given several times.",
)
@click.option(
    "--write",
    multiple=True,
    metavar="FOLDER",
    callback=_resolve_folders,
    help="Let code read and change FOLDER, at the same path. Can be given several times.",
)
@click.option("--confirm", is_flag=True, help="Ask the user before each run, in the client.")
@click.option(
    "--http",
    "port",
    type=Port(0, 65535),
    metavar="PORT",
    help="Serve http://127.0.0.1:PORT/mcp instead of standard input and output.",
)
def command(**options: Any) -> int:
    """Serve a sandbox to MCP clients, such as desktop apps and code editors.

    The client starts this command and talks to it on standard input and output. Its model gets
    tools that run code, use files, and save and restore sessions. All sessions end with the
    command.
    """
    _require_packages(options["port"])
    if options["executor"] == "docker" and (options["read"] or options["write"]):
        raise click.UsageError("--read and --write apply only to --executor sandbox")
    if options["image"] is not None and options["executor"] != "docker":
        raise click.UsageError("--image applies only to --executor docker")
    check_env(options["env"], options["executor"])
    settings, advice = _settings(options), _advice(options)
    port = options["port"]
    if port is None:
        if sys.stdin and sys.stdin.isatty():
            click.echo(_TERMINAL_ADVICE, err=True)
        from ..server.doors.mcp.stdio import serve_stdio

        work = serve_stdio(settings, confirm=options["confirm"], advice=advice)
        return asyncio.run(_until_signal(work))
    click.echo("cellblock: starting", err=True)
    from ..server.doors.mcp.loopback import serve_loopback

    return asyncio.run(
        serve_loopback(settings, port, _print_url, confirm=options["confirm"], advice=advice)
    )


def _print_url(url: str) -> None:
    click.echo(f"cellblock: serving on {url}", err=True)


def _require_packages(port: int | None) -> None:
    extras = [] if find_spec("mcp") else ["mcp"]
    if port is not None and not find_spec("sqlalchemy"):
        extras.append("server")
    if extras:
        needed = f"cellblock[{','.join(extras)}]"
        raise CellblockError(f"This needs more packages. Install them: pip install '{needed}'.")


def _settings(options: dict[str, Any]) -> ServedSettings:
    from ..limits import Limits
    from ..policy import Mount, Policy
    from ..server.settings import ServedSettings

    limits = {"memory_bytes": options["memory_bytes"], "files": options["files"]}
    return ServedSettings(
        executor=options["executor"],
        image=options["image"],
        packages=options["packages"],
        env=options["env"],
        preload=options["preload"],
        limits=Limits(**{name: value for name, value in limits.items() if value is not None}),
        policy=Policy(
            network="host" if options["network"] else "none",
            read_only=tuple(Mount(folder) for folder in options["read"]),
            read_write=tuple(Mount(folder) for folder in options["write"]),
        ),
        run_seconds=options["timeout"],
        idle_seconds=_SESSION_SECONDS,
        max_age_seconds=None,
        max_sessions=_MAX_SESSIONS,
    )


def _advice(options: dict[str, Any]) -> str:
    """Return what the model should know about these options."""
    parts = [
        "Code can use the network." if options["network"] else "Code cannot use the network.",
        f"A run may take {options['timeout']:g} seconds.",
    ]
    if options["packages"]:
        packages = ", ".join(options["packages"])
        parts.append(f"Packages for code: {packages}. If one cannot be installed, tools say so.")
    if options["read"]:
        parts.append(f"Code can read these folders of the user: {', '.join(options['read'])}.")
    if options["write"]:
        parts.append(f"Code can change these folders of the user: {', '.join(options['write'])}.")
    return " ".join(parts)


async def _until_signal(work: Coroutine[Any, Any, None]) -> int:
    """Run `work`, and cancel it at the first SIGINT or SIGTERM. Return the exit code."""
    loop, task, received = asyncio.get_running_loop(), asyncio.ensure_future(work), list[int]()

    def on_signal(number: int) -> None:
        if not received:
            received.append(number)
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
    return 128 + received[0] if received else 0
