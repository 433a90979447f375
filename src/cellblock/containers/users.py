"""Map users between host and container, so that files in the work folder belong to the caller.

In a rootless engine, the engine's user is root inside the container. An engine with `userns-remap`
maps every user to another one, unless the container uses the host's user namespace. In all other
engines, user IDs are the same inside and outside.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .client import EngineClient


def container_user(client: EngineClient, folder: Path | None) -> str:
    """Return, as "uid:gid", the container user that is the caller on the host.

    If the caller is root, it is the owner of `folder` instead.
    """
    if sys.platform == "win32" or client.is_rootless:
        return "0:0"
    if os.geteuid() != 0 or folder is None:
        return f"{os.geteuid()}:{os.getegid()}"
    status = folder.stat()
    return f"{status.st_uid}:{status.st_gid}"


def userns_config(client: EngineClient) -> dict[str, str]:
    """Return the HostConfig entries that turn user remapping off, for bind mounts."""
    return {"UsernsMode": "host"} if client.remaps_users and not client.is_rootless else {}


def chown_to_container_user(folder: Path, client: EngineClient, user: str) -> None:
    """Change the owner of `folder` to "uid:gid" of a container, which could not enter it otherwise.

    Do nothing if the caller is not root.
    """
    if sys.platform == "win32":
        return
    uid, _, gid = user.partition(":")
    if os.geteuid() != 0 or not uid.isdigit():
        return
    if not client.is_rootless:
        os.chown(folder, int(uid), int(gid) if gid.isdigit() else -1)
    elif int(uid) == 0 and (socket := client.socket) is not None:
        # Root inside a rootless container is the user that runs the engine.
        os.chown(folder, socket.stat().st_uid, -1)
