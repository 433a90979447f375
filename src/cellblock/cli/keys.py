"""`cellblock keys`: the API keys of `cellblock serve`."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ..limits import MIB, MIN_MEMORY_BYTES
from .options.types import FiniteFloat, JsonObject, Since, Size
from .serve import database_option, open_state
from .terminal.render import format_table

if TYPE_CHECKING:
    from ..server.keys.key_store import KeyInfo, KeyStore
    from ..server.owners import Overrides

_SECONDS_A_DAY = 86_400


@click.group("keys")
def command() -> None:
    """Add, list and revoke the API keys of `cellblock serve`, and show what they use."""


@command.command("add")
@click.argument("name")
@click.option("--days", type=FiniteFloat(min=0, min_open=True), help="Expire after DAYS.")
@click.option("--max-sessions", type=click.IntRange(min=1), help="Sessions at one time.")
@click.option("--max-running", type=click.IntRange(min=1), help="Runs at one time on a server.")
@click.option(
    "--cpu-seconds",
    type=FiniteFloat(min=0, min_open=True),
    help="CPU seconds of all runs in a day (UTC).",
)
@click.option("--disk", type=Size(MIB), metavar="SIZE",
              help="Bytes on disk of all sessions on a server, such as 2G.")  # fmt: skip
@click.option("--memory", type=Size(MIN_MEMORY_BYTES), metavar="SIZE",
              help="Memory limit of one run, such as 512M.")  # fmt: skip
@click.option("--timeout", type=FiniteFloat(min=1), metavar="SECONDS",
              help="Longest time of one run, if it is shorter than the server's.")  # fmt: skip
@click.option("--network/--no-network", default=None, help="Whether code can use the network.")
@click.option("--limits", type=JsonObject(), metavar="JSON",
              help='Other limits of one run, such as \'{"processes": 64}\'.')  # fmt: skip
@click.option("--policy", type=JsonObject(), metavar="JSON",
              help='Other fields of the policy, such as \'{"read_only": ["/data"]}\'.')  # fmt: skip
@click.option("--admin", is_flag=True, help="Let its holder manage all keys in the console.")
@database_option
def add(
    name: str,
    days: float | None,
    max_sessions: int | None,
    max_running: int | None,
    cpu_seconds: float | None,
    disk: int | None,
    admin: bool,
    database: str | None,
    **overrides: Any,
) -> int:
    """Create a key for NAME and print it. It cannot be shown again.

    It replaces a key of this name that was revoked or has expired.
    Limits and the policy that you do not name are the server's.
    """
    with _open_keys(database, must_exist=False) as keys:
        from ..server.owners import Quotas

        quotas = Quotas(
            sessions=max_sessions,
            running=max_running,
            cpu_seconds_a_day=cpu_seconds,
            disk_bytes=disk,
        )
        expires_at = None if days is None else int(time.time() + days * _SECONDS_A_DAY)
        _, key = keys.add(
            name,
            quotas=quotas,
            overrides=_to_overrides(overrides),
            expires_at=expires_at,
            is_admin=admin,
        )
        click.echo(key)
    return 0


@command.command("list")
@click.option("--json", "as_json", is_flag=True,
              help="Print all that is known of each key, as one JSON object a line.")  # fmt: skip
@database_option
def list_keys(as_json: bool, database: str | None) -> int:
    """Print ID, state, day of creation and name of each key."""
    with _open_keys(database) as keys:
        found = keys.list_keys()
        if as_json:
            _print_lines(json.dumps(_describe(key)) for key in found)
            return 0
        rows = [(key.id, key.state, _day(key.created_at), key.name) for key in found]
        _print_lines(format_table([("ID", "STATE", "CREATED", "NAME"), *rows]))
    return 0


@command.command("usage")
@click.option("--since", type=Since(), default="30d", show_default=True, metavar="TIME",
              help="From the day (UTC) of this time: 2026-11-26, or 7d ago.")  # fmt: skip
@click.option("--key", metavar="KEY", help="Of the key with this name or ID.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@database_option
def show_usage(since: float, key: str | None, as_json: bool, database: str | None) -> int:
    """Print sessions, runs, seconds, CPU seconds and name of each key on each day.

    A day is one of UTC. Keys that were removed are there too.
    """
    with open_state(database) as engine:
        from ..server.state.usage import read_usage

        found = read_usage(engine, since_day=int(since) // _SECONDS_A_DAY, key=key)
    days = [_day(each.day * _SECONDS_A_DAY) for each in found]
    if as_json:
        pairs = zip(found, days, strict=True)
        _print_lines(json.dumps({**asdict(each), "day": day}) for each, day in pairs)
        return 0
    rows = [
        (
            day,
            str(each.sessions),
            str(each.runs),
            f"{each.run_seconds:.3f}",
            f"{each.cpu_seconds:.3f}",
            each.key_name,
        )
        for each, day in zip(found, days, strict=True)
    ]
    headings = ("DAY", "SESSIONS", "RUNS", "SECONDS", "CPU SECONDS", "NAME")
    _print_lines(format_table([headings, *rows]))
    return 0


@command.command("revoke")
@click.argument("name")
@database_option
def revoke(name: str, database: str | None) -> int:
    """Revoke the key with this NAME or ID. Servers refuse it within one second.

    Accepted runs continue.
    """
    with _open_keys(database) as keys:
        click.echo(keys.revoke(name).id)
    return 0


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def _to_overrides(options: dict[str, Any]) -> Overrides:
    from ..limits import Limits
    from ..server.owners import Overrides

    limits: dict[str, Any] = options["limits"] or {}
    policy: dict[str, Any] = options["policy"] or {}
    network = {True: "host", False: "none", None: None}[options["network"]]
    _add_value(limits, "--limits", "memory_bytes", "--memory", options["memory"])
    _add_value(limits, "--limits", "wall_seconds", "--timeout", options["timeout"])
    _add_value(policy, "--policy", "network", "--network", network)
    with _name_option("--limits"):
        named = Limits.from_dict(limits)
    with _name_option("--policy"):
        return Overrides(limits=named, policy=policy)


@contextlib.contextmanager
def _name_option(option: str) -> Generator[None]:
    """Turn a `ValueError` into an error of usage that names `option`."""
    try:
        yield
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=f"'{option}'") from error


def _add_value(values: dict[str, Any], source: str, name: str, option: str, value: Any) -> None:
    if value is None:
        return
    if name in values:
        raise click.UsageError(f"{option} and {source} both set {name}. Use one of them.")
    values[name] = value


def _describe(key: KeyInfo) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "state": key.state,
        "admin": key.is_admin,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "quotas": asdict(key.quotas),
        "limits": key.overrides.limits.to_dict(),
        "policy": dict(key.overrides.policy),
    }


@contextlib.contextmanager
def _open_keys(url: str | None, *, must_exist: bool = True) -> Generator[KeyStore]:
    with open_state(url, must_exist=must_exist) as engine:
        from ..server.keys.key_store import KeyStore

        yield KeyStore(engine)
