"""Whose a container is: labels that tell, and the removal of containers whose owner is gone.

An owner holds its container by a process that it keeps running in there, over a stream of its own: when the owner or its
machine dies, the engine closes the stream and that process ends. That is the lease, and it needs no clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from datetime import UTC, datetime
from typing import Any

from ..runtime.linux import process_tree
from .client import Client, translated

OWNER = "cellblock.owner"
KEPT = "cellblock.kept"
_NEW = 60.0  # seconds for which a container may be without a holder: its owner is still about to take hold


def labels(*, kept: bool) -> dict[str, str]:
    """Give the labels of a container of this process. `kept`: it stays when its owner is gone."""
    return {
        OWNER: json.dumps(
            {"machine": _machine(), "pid": os.getpid(), "since": process_tree.began(os.getpid())}
        ),
        KEPT: str(int(kept)),
    }


async def remove_orphans(client: Client) -> list[str]:
    """Remove the containers that are ours and whose owner is gone; give their names.

    One that was to be kept stays, and so does any whose owner may live.
    """
    removed: list[str] = []
    with translated("The containers of the engine cannot be listed"):
        found = await client.docker.containers.list(all=1, filters=json.dumps({"label": [OWNER]}))
    for container in found:
        facts: dict[str, Any] = container._container
        if facts["Labels"].get(KEPT) == "1" or not await _is_orphan(client, facts):
            continue
        with contextlib.suppress(
            Exception
        ):  # somebody else was faster; the engine removes it already
            await container.delete(force=True, v=True)
            removed.append(str(facts["Names"][0]).lstrip("/"))
    return removed


async def _is_orphan(client: Client, facts: dict[str, Any]) -> bool:
    try:
        owner = json.loads(facts["Labels"][OWNER])
        machine, pid, since = str(owner["machine"]), int(owner["pid"]), str(owner["since"])
    except (ValueError, KeyError, TypeError):
        return False  # not a label of ours
    if machine == _machine():
        return process_tree.began(pid) != since
    if time.time() - float(facts["Created"]) < _NEW:
        return False
    return not await _is_held(client, str(facts["Id"]))


async def _is_held(client: Client, identity: str) -> bool:
    """Tell whether a process that somebody started in the container by a stream still runs."""
    from aiodocker import DockerError  # an extra; who comes here has it

    try:
        facts = await client.docker.containers.container(identity).show()
    except DockerError:
        return True  # gone meanwhile, or not to be known: not ours to remove
    started = (
        datetime.fromisoformat(str(facts["State"]["StartedAt"])[:19])
        .replace(tzinfo=UTC)
        .timestamp()
    )
    return bool(facts.get("ExecIDs")) or time.time() - started < _NEW


def _machine() -> str:
    """Name this machine since its start, and the process namespace that we see of it."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
