"""The porter of a sandbox: a process that still sees the machine, and hands folders of it in, one mount at a time.

Sessions come and go, each with folders of its own, while the zygote that they are forked from has let go of the machine for
good. The porter obeys the cell server alone, over a socket: ``[mount, ...]`` as `mounts.open_trees` takes them, answered by
``{"count": n}`` with so many descriptors, or by ``{"error": ...}``. It ends with the server.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, NoReturn

from ..cell.init import PACKET
from . import mounts


def fork(link: socket.socket, user: int | None) -> None:
    """Fork a porter. `user`, for root alone: whom the owners of what is handed in appear as."""
    if os.fork() == 0:
        try:
            _serve(link, user)
        finally:
            os._exit(1)


def _serve(link: socket.socket, user: int | None) -> NoReturn:
    os.dup2(link.fileno(), 3)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    link = socket.socket(fileno=3)
    maps: mounts.Maps = {}
    while True:
        data = link.recv(PACKET)
        if not data:
            os._exit(0)
        trees: list[mounts.Tree] = []
        answer: dict[str, Any] = {}
        try:
            trees = mounts.open_trees(json.loads(data), user, maps)
        except OSError as error:
            answer = {"error": str(error)}
        socket.send_fds(link, [json.dumps(answer).encode()], [tree.descriptor for tree in trees])
        for tree in trees:
            os.close(tree.descriptor)
