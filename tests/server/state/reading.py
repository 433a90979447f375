"""Read what servers have recorded, with the commands that users have."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import func, select

from cellblock.server.state.tables import AuditRow
from tests.command_server import run_command
from tests.server.rest.requesting import wait_for
from tests.server.serving import Server


def read_audit(url: str, *options: str) -> list[dict[str, Any]]:
    """Return the records of the audit log."""
    return _read("audit", "--database", url, *options)


def read_usage(url: str, *options: str) -> list[dict[str, Any]]:
    """Return what keys have used."""
    return _read("keys", "usage", "--json", "--database", url, *options)


def _read(*arguments: str) -> list[dict[str, Any]]:
    done = run_command(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def records_of(server: Server, key: str, count: int) -> list[dict[str, Any]]:
    """Return the records of a key, once there are `count`."""
    counted = select(func.count()).where(AuditRow.key_name == key)

    def has_all() -> bool:
        with server.keys._engine.connect() as connection:
            return (connection.scalar(counted) or 0) >= count

    wait_for(has_all)
    return read_audit(server.database, "--key", key)


def runs_of(server: Server, key: str, count: int) -> list[dict[str, Any]]:
    """Return the records of what a key has run, once it has `count` records of any kind."""
    return [each for each in records_of(server, key, count) if each["action"] in ("run", "command")]
