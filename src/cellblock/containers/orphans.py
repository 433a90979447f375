"""Label containers with their owner process, and remove orphans: containers whose owner is gone.

Owners on other machines cannot be looked up by process ID. They hold a lease instead: a process
that the owner keeps running in the container, attached to a stream. If the owner or its machine
dies, the engine closes the stream and the process exits. The lease needs no clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

from ..runtime.linux import process_tree
from .client import EngineClient, translate_errors

OWNER_LABEL = "cellblock.owner"
KEPT_LABEL = "cellblock.kept"
_OTHER_SYSTEM = "other"  # the machine of owners that do not run on Linux
_LEASE_GRACE = 60.0  # seconds after its start for which a container needs no lease


def owner_labels(*, kept: bool) -> dict[str, str]:
    """Return the labels for a container owned by this process. `kept`: it outlives its owner."""
    pid = os.getpid()
    owner = {"machine": _machine_id(), "pid": pid, "since": process_tree.start_time(pid)}
    return {OWNER_LABEL: json.dumps(owner), KEPT_LABEL: str(int(kept))}


async def remove_orphans(client: EngineClient) -> list[str]:
    """Remove cellblock's containers whose owner is gone, and return their names.

    Containers that are to be kept stay, and so do those whose owner may still be running.
    """
    removed: list[str] = []
    with translate_errors("The containers of the engine cannot be listed"):
        found = await client.docker.containers.list(
            all=1, filters=json.dumps({"label": [OWNER_LABEL]})
        )
    for container in found:
        info: dict[str, Any] = container._container
        if info["Labels"].get(KEPT_LABEL) == "1" or not await _is_orphan(client, info):
            continue
        # Another process may be removing it already.
        with contextlib.suppress(Exception):
            await container.delete(force=True, v=True)
            removed.append(str(info["Names"][0]).lstrip("/"))
    return removed


async def _is_orphan(client: EngineClient, info: dict[str, Any]) -> bool:
    try:
        owner = json.loads(info["Labels"][OWNER_LABEL])
        machine, pid, since = str(owner["machine"]), int(owner["pid"]), str(owner["since"])
    except (ValueError, KeyError, TypeError):
        return False  # not written by cellblock
    if machine == _machine_id() != _OTHER_SYSTEM:
        return process_tree.start_time(pid) != since
    if time.time() - float(info["Created"]) < _LEASE_GRACE:
        return False
    return not await _has_lease(client, str(info["Id"]))


async def _has_lease(client: EngineClient, container_id: str) -> bool:
    """Return True if an exec process runs in the container, or may not have been started yet."""
    from aiodocker import DockerError  # an extra; a caller with a client has it

    try:
        info = await client.docker.containers.container(container_id).show()
    except DockerError:
        return True  # removed meanwhile, or unknown: do not remove it
    started = (
        datetime.fromisoformat(str(info["State"]["StartedAt"])[:19]).replace(tzinfo=UTC).timestamp()
    )
    return bool(info.get("ExecIDs")) or time.time() - started < _LEASE_GRACE


def _machine_id() -> str:
    """Return a key for this boot of this machine and the PID namespace of this process."""
    if sys.platform != "linux":
        return _OTHER_SYSTEM  # no process can be looked up: owners hold a lease only
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
