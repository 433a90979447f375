"""Read what servers have recorded, with the commands that users have."""

from __future__ import annotations

import json
from typing import Any

from tests.command_server import run_command


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
