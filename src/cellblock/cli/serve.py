"""`cellblock serve`: its options and their validation."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import BackendError
from ..limits import MIN_MEMORY_BYTES
from .options.shared import check_env, env_option
from .options.types import Amount, FiniteFloat, Port, Size

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ..server.process import ServerSettings
    from ..server.settings import ServedSettings

_MODULES = (
    "starlette",
    "uvicorn",
    "alembic",
    "sqlalchemy",
    "python_multipart",
    "prometheus_client",
    "jinja2",
    "mdit_py_plugins",
    "nh3",
    "tinycss2",
)
_DATABASE_HELP = (
    "Database of keys, usage and log: sqlite:///FILE, or postgresql://HOST/NAME (extra: postgres). "
    "Put a URL with a password into CELLBLOCK_DATABASE.  [default: an SQLite file of this user]"
)


def database_option(command: Any) -> Any:
    """Add the option that names the database of servers."""
    option = click.option(
        "--database", metavar="URL", envvar="CELLBLOCK_DATABASE", help=_DATABASE_HELP
    )
    return option(command)


def require_server_packages() -> None:
    """Raise `BackendError` if the extra `server` is not installed."""
    if missing := [name for name in _MODULES if find_spec(name) is None]:
        raise BackendError(
            f"This needs {', '.join(missing)}. Install them: pip install 'cellblock[server]'."
        )


@contextlib.contextmanager
def open_state(url: str | None, *, must_exist: bool = True) -> Generator[Engine]:
    """Yield the database of servers. Raise `BackendError`."""
    require_server_packages()
    from ..server.state.database import default_database_url, open_database

    engine = open_database(url or default_database_url(), must_exist=must_exist)
    try:
        yield engine
    finally:
        engine.dispose()


_SECONDS = FiniteFloat(min=1)
_COUNT = click.IntRange(min=1)
_MAX_RUNNING_ON_CLUSTER = 1000


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=Port(0, 65535), default=8000, show_default=True)
@click.option(
    "--executor",
    type=click.Choice(["sandbox", "docker"]),
    default="sandbox",
    show_default=True,
    help="Where sessions run.",
)
@click.option("--image", metavar="IMAGE", help="Image for --executor docker.")
@click.option("--timeout", type=_SECONDS, default=220, show_default=True, metavar="SECONDS",
              help="Longest time of one run.")  # fmt: skip
@click.option("--memory", type=Size(MIN_MEMORY_BYTES), metavar="SIZE",
              help="Memory limit of one run, such as 512M.")  # fmt: skip
@click.option("--network", is_flag=True, help="Allow code to access the network.")
@click.option("--package", "packages", multiple=True, metavar="NAME",
              help="Install a package for all sessions.")  # fmt: skip
@env_option
@click.option("--preload", multiple=True, metavar="MODULE",
              help="Import a module once for all sessions.")  # fmt: skip
@click.option("--idle", type=_SECONDS, default=600, show_default=True, metavar="SECONDS",
              help="End sessions that were not used for this time.")  # fmt: skip
@click.option("--max-age", type=_SECONDS, default=86400, show_default=True, metavar="SECONDS",
              help="End sessions at this age.")  # fmt: skip
@click.option("--max-sessions", type=_COUNT, default=600, show_default=True)
@click.option(
    "--max-running", type=_COUNT, help="Runs at one time.  [default: 4 a CPU; 1000 with --ray]"
)
@click.option("--max-queued", type=_COUNT, default=64, show_default=True,
              help="Waiting runs of one key.")  # fmt: skip
@click.option("--max-body", type=Size(), default="16M", show_default=True, metavar="SIZE")
@click.option("--max-file", type=Size(), default="128M", show_default=True, metavar="SIZE")
@click.option("--drain", type=click.IntRange(min=0), default=30, show_default=True,
              metavar="SECONDS",
              help="Time for current runs and requests after SIGTERM.")  # fmt: skip
@click.option("--stall", type=_SECONDS, default=30, show_default=True, metavar="SECONDS",
              help="Disconnect clients that do not send or read for this time.")  # fmt: skip
@click.option("--keep-alive", type=_COUNT, default=75, show_default=True, metavar="SECONDS",
              help="Close connections without a request after this time.")  # fmt: skip
@database_option
@click.option("--name", metavar="NAME",
              help="Name of this server in the audit log.  [default: host and port]")  # fmt: skip
@click.option("--audit-days", type=FiniteFloat(min=1), default=365, show_default=True,
              metavar="DAYS", help="How long the audit log is kept.")  # fmt: skip
@click.option("--ray", metavar="ADDRESS",
              help="Run sessions on the nodes of this Ray cluster (extra: ray): HOST:PORT, or "
              "auto for one of this machine.")  # fmt: skip
@click.option("--session-resource", "session_resources", type=Amount(), multiple=True,
              metavar="NAME=AMOUNT",
              help="What a session reserves of a node of Ray.  [default: CPU=0.1]")  # fmt: skip
@click.option("--no-auth", is_flag=True, help="Accept clients without keys, on loopback only.")
@click.option("--no-console", is_flag=True, help="Do not serve the pages at /console.")
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="TLS certificate (PEM).")  # fmt: skip
@click.option("--private-key", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Private key of the certificate (PEM).")  # fmt: skip
@click.option("--self-signed", is_flag=True, help="Use TLS with a self-signed certificate.")
def command(**options: Any) -> int:
    """Serve sandboxed sessions to clients of Azure dynamic sessions and other code interpreters.

    Clients send an API key as bearer token. Create keys with `cellblock keys add`. Sessions are
    made on first use, and their files are in /mnt/data. The log is one JSON object a line, without
    code and output.
    """
    import asyncio

    require_server_packages()
    from ..server.process import log_as_json, serve

    settings, sessions = _server_settings(options), _session_settings(options)
    log_as_json()
    asyncio.run(serve(settings, sessions, _print_note))
    return 0


def _print_note(text: str) -> None:
    click.echo(f"cellblock: {text}", err=True)


def _server_settings(options: dict[str, Any]) -> ServerSettings:
    from ..server.cluster.factory import SESSION_RESOURCES
    from ..server.process import ServerSettings

    certificate, private_key = options["certificate"], options["private_key"]
    if options["self_signed"]:
        if certificate or private_key:
            _fail_usage("--self-signed does not apply with --certificate and --private-key")
        certificate, private_key = _self_signed(options["host"])
    try:
        return ServerSettings(
            host=options["host"],
            port=options["port"],
            name=options["name"],
            database_url=options["database"],
            audit_days=options["audit_days"],
            needs_keys=not options["no_auth"],
            has_console=not options["no_console"],
            certificate=certificate,
            private_key=private_key,
            drain_seconds=options["drain"],
            stall_seconds=options["stall"],
            keep_alive_seconds=options["keep_alive"],
            ray=options["ray"],
            session_resources=dict(options["session_resources"]) or SESSION_RESOURCES,
        )
    except ValueError as error:
        _fail_usage(str(error))
        raise


def _session_settings(options: dict[str, Any]) -> ServedSettings:
    from ..limits import Limits
    from ..policy import Policy
    from ..server.settings import ServedSettings

    if options["image"] and options["executor"] != "docker":
        _fail_usage("--image applies only to --executor docker")
    check_env(options["env"], options["executor"])
    memory = options["memory"]
    return ServedSettings(
        executor=options["executor"],
        image=options["image"],
        packages=options["packages"],
        env=options["env"],
        preload=options["preload"],
        limits=Limits() if memory is None else Limits(memory_bytes=memory),
        policy=Policy(network="host" if options["network"] else "none"),
        run_seconds=options["timeout"],
        idle_seconds=options["idle"],
        max_age_seconds=options["max_age"],
        max_sessions=options["max_sessions"],
        max_running=options["max_running"] or _max_running(options["ray"]),
        max_queued=options["max_queued"],
        max_body_bytes=options["max_body"],
        max_file_bytes=options["max_file"],
    )


def _max_running(ray: str | None) -> int:
    """Return the default: with Ray, what sessions reserve is the limit."""
    return 4 * (os.cpu_count() or 1) if ray is None else _MAX_RUNNING_ON_CLUSTER


def _self_signed(host: str) -> tuple[Path, Path]:
    if find_spec("cryptography") is None:
        raise BackendError(
            "--self-signed needs cryptography. Install it: pip install 'cellblock[server]'."
        )
    from ..server.http.serving.tls import self_signed
    from ..server.state.database import state_folder

    made = self_signed(state_folder() / "tls", host)
    _print_note(f"clients trust this certificate with SSL_CERT_FILE={made.certificate}")
    return made.certificate, made.private_key


def _fail_usage(message: str) -> None:
    click.get_current_context().fail(message)
