"""Whose files are whose: which user inside a container is the caller outside.

A rootless engine's user is root inside; an engine that remaps users (`userns-remap`) has others inside for all there are
outside, unless it is told not to; any other engine has the same inside as outside.
"""

from __future__ import annotations

import os
from pathlib import Path

from .client import Client


def own_user(client: Client, folder: Path | None) -> str:
    """Give, as "uid:gid", the user inside whose files are the caller's outside; for root, those of `folder`'s owner."""
    if client.is_rootless:
        return "0:0"
    if os.geteuid() != 0 or folder is None:
        return f"{os.geteuid()}:{os.getegid()}"
    status = folder.stat()
    return f"{status.st_uid}:{status.st_gid}"


def unmapped(client: Client) -> dict[str, str]:
    """Give what the engine is to be told of a container that is shown the caller's files, in its own words."""
    return {"UsernsMode": "host"} if client.remaps_users and not client.is_rootless else {}


def give(folder: Path, client: Client, user: str) -> None:
    """Give a folder of ours, if we are root, to "uid:gid" of a container, who could not enter it otherwise."""
    uid, _, gid = user.partition(":")
    if os.geteuid() != 0 or not uid.isdigit():
        return
    if not client.is_rootless:
        os.chown(folder, int(uid), int(gid) if gid.isdigit() else -1)
    elif (
        int(uid) == 0 and (socket := client.socket) is not None
    ):  # somebody's engine, whom root inside is
        os.chown(folder, socket.stat().st_uid, -1)
