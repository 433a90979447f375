"""The porter of a sandbox: a process that still sees the machine, and hands folders of it in, one mount at a time.

Sessions come and go, each with folders of its own, while the zygote that they are forked from has let go of the machine for
good. The porter obeys the cell server alone, over a socket: ``[mount, ...]`` as `mounts.open_trees` takes them, answered by
``{"count": n}`` with so many descriptors, or by ``{"error": ...}``. It ends with the server.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
from typing import Any, NoReturn

from ...runtime.cell.init import PACKET
from . import mounts


def fork(link: socket.socket, user: int | None, maps: mounts.Maps) -> None:
    """Fork a porter. For root alone: `user`, as whom the owners of what is handed in appear, and the `maps` there are."""
    if os.fork() == 0:
        try:
            _close_all_but(link.fileno(), *maps.values())
            _serve(link, user, maps)
        finally:
            os._exit(1)


def _close_all_but(*kept: int) -> None:
    edges = [2, *sorted(kept), os.sysconf("SC_OPEN_MAX")]
    for low, high in itertools.pairwise(edges):
        os.closerange(low + 1, high)


def _serve(link: socket.socket, user: int | None, maps: mounts.Maps) -> NoReturn:
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
