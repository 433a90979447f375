"""`cellblock audit`: the audit log of `cellblock serve`."""

from __future__ import annotations

from typing import Any

import click

from .options.types import Since
from .serve import database_option, open_state


@click.command("audit")
@click.option("--since", type=Since(), metavar="TIME",
              help="What began since then: 2026-11-26T19:00 (UTC), or 24h ago.")  # fmt: skip
@click.option("--until", type=Since(), metavar="TIME", help="What began before this time.")
@click.option("--key", metavar="KEY", help="What the key with this name or ID did.")
@click.option("--session", metavar="ID", help="What happened in the session.")
@click.option("--action", metavar="NAME", help="Only this, such as run or file.upload.")
@database_option
def command(database: str | None, **chosen: Any) -> int:
    """Print who did what and when, as one JSON object a line, oldest first.

    There is one line for each run and command that has ended, for what was done to sessions and
    files, for each sign-in to the console, and for each key that was added or revoked. It never has
    code, output, variables, or names of files and checkpoints.
    """
    with open_state(database) as engine:
        from ..server.state.audit import AuditFilter, read_audit

        for record in read_audit(engine, AuditFilter(**chosen)):
            click.echo(record.to_json())
    return 0
