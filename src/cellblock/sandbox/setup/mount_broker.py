"""The mount broker of a sandbox: a process that sees the host's files and sends mounts of them in.

Sessions and tenants start and end, each with its own folders, but the zygote that they are forked
from no longer sees the host. The broker obeys only the runtime server, over a socket. A request is
`messages.FetchMounts`, the reply `messages.FetchedMounts`. The broker ends with the server.
"""

from __future__ import annotations

import itertools
import os
import socket
from typing import NoReturn

from ...runtime.handshake import MAX_PACKET
from ...runtime.linux.retry import retry
from ...runtime.messages import FetchedMounts, FetchMounts
from ...runtime.packets import decode_packet, encode_packet
from . import mounts


def fork_broker(stream: socket.socket, user: int | None, id_maps: mounts.IdMaps) -> None:
    """Fork a mount broker.

    As root only: owners of mounted files appear as `user`, with the existing `id_maps`.
    """
    if os.fork() == 0:
        try:
            _close_all_but(stream.fileno(), *id_maps.values())
            _serve(stream, user, id_maps)
        finally:
            os._exit(1)


def _close_all_but(*kept: int) -> None:
    edges = [2, *sorted(kept), os.sysconf("SC_OPEN_MAX")]
    for low, high in itertools.pairwise(edges):
        os.closerange(low + 1, high)


def _serve(stream: socket.socket, user: int | None, id_maps: mounts.IdMaps) -> NoReturn:
    while True:
        data = retry(lambda: stream.recv(MAX_PACKET))
        if not data:
            os._exit(0)
        trees: list[mounts.MountTree] = []
        try:
            request = decode_packet(data, FetchMounts)
            trees = mounts.open_trees(request.mounts, user, id_maps)
            reply = FetchedMounts(len(trees))
        except (OSError, MemoryError) as error:
            reply = FetchedMounts(error=str(error))
        _reply(stream, reply, [tree.descriptor for tree in trees])
        for tree in trees:
            os.close(tree.descriptor)


def _reply(stream: socket.socket, reply: FetchedMounts, descriptors: list[int]) -> None:
    """Send a reply. If that fails, send the error instead: the server waits for one in order."""
    try:
        socket.send_fds(stream, [encode_packet(reply)], descriptors)
    except (OSError, MemoryError) as error:
        packet = encode_packet(FetchedMounts(error=str(error)))
        retry(lambda: stream.send(packet))
