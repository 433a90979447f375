"""`cellblock keys`: the API keys of `cellblock serve`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

import click

from .serve import database_option, require_server_packages

if TYPE_CHECKING:
    from ..server.keys.key_store import KeyStore

_SECONDS_A_DAY = 86_400


@click.group("keys")
def command() -> None:
    """Add, list and revoke the API keys of `cellblock serve`."""


@command.command("add")
@click.argument("name")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="Expire after DAYS.")
@click.option("--max-sessions", type=click.IntRange(min=1), help="Sessions at one time.")
@click.option("--max-running", type=click.IntRange(min=1), help="Runs at one time.")
@click.option(
    "--cpu-seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="CPU seconds of all runs in a day (UTC).",
)
@database_option
def add(
    name: str,
    days: float | None,
    max_sessions: int | None,
    max_running: int | None,
    cpu_seconds: float | None,
    database: str | None,
) -> int:
    """Create a key for NAME and print it. It cannot be shown again."""
    with _open_keys(database) as keys:
        from ..server.owners import Quotas

        quotas = Quotas(sessions=max_sessions, running=max_running, cpu_seconds_a_day=cpu_seconds)
        expires_at = None if days is None else int(time.time() + days * _SECONDS_A_DAY)
        _, key = keys.add(name, quotas=quotas, expires_at=expires_at)
        click.echo(key)
    return 0


@command.command("list")
@database_option
def list_keys(database: str | None) -> int:
    """Print ID, state, time of creation and name of each key, separated by tabs."""
    with _open_keys(database) as keys:
        for key in keys.list_keys():
            created = time.strftime("%Y-%m-%d", time.gmtime(key.created_at))
            click.echo(f"{key.id}\t{key.state}\t{created}\t{key.name}")
    return 0


@command.command("revoke")
@click.argument("name")
@database_option
def revoke(name: str, database: str | None) -> int:
    """Revoke the key with this NAME or ID. Requests with it are refused from now on."""
    with _open_keys(database) as keys:
        click.echo(keys.revoke(name).id)
    return 0


@contextlib.contextmanager
def _open_keys(url: str | None) -> Generator[KeyStore]:
    require_server_packages()
    from ..server.keys.database import default_database_url, open_database
    from ..server.keys.key_store import KeyStore

    keys = KeyStore(open_database(url or default_database_url()))
    try:
        yield keys
    finally:
        keys.close()
