"""The mount broker of a sandbox: a process that sees the host's files and sends mounts of them in.

Sessions and tenants start and end, each with its own folders, but the zygote that they are forked
from no longer sees the host. The broker obeys only the runtime server, over a socket. A request is
`messages.FetchMounts`, the reply `messages.FetchedMounts`. The broker ends with the server.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from typing import NoReturn

from ...runtime.handshake import MAX_PACKET
from ...runtime.linux.retry import retry
from ...runtime.messages import FetchedMounts, FetchMounts, TakeBackFiles
from ...runtime.packets import decode_packet, encode_packet
from ...runtime.spec import SandboxSpec
from . import mounts
from .left_files import LeftFiles

_PASSES, _PASS_INTERVAL = 5, 1.0  # seconds


def fork_broker(
    stream: socket.socket, owners: mounts.OwnerMap | None, sandbox: SandboxSpec
) -> None:
    """Fork a mount broker. As root only: `owners` of mounted files are mapped."""
    if os.fork() == 0:
        try:
            _close_all_but(stream.fileno(), *(owners.namespaces.values() if owners else ()))
            left = None
            if sandbox.sub_ids is not None:
                left = LeftFiles(None if owners is None else sandbox.sub_ids)
                left.watch(sandbox.mounts)
            _serve(stream, owners, left)
        finally:
            os._exit(1)


def _close_all_but(*kept: int) -> None:
    edges = [2, *sorted(kept), os.sysconf("SC_OPEN_MAX")]
    for low, high in itertools.pairwise(edges):
        os.closerange(low + 1, high)


def _serve(
    stream: socket.socket, owners: mounts.OwnerMap | None, left: LeftFiles | None
) -> NoReturn:
    while True:
        data = retry(lambda: stream.recv(MAX_PACKET))
        if not data:
            if left is not None:
                _take_back_at_end(stream, left)
            os._exit(0)
        trees: list[mounts.MountTree] = []
        try:
            request = decode_packet(data, FetchMounts, TakeBackFiles)
            if isinstance(request, FetchMounts):
                if left is not None:
                    left.watch(request.mounts)
                trees = mounts.open_trees(request.mounts, owners)
            elif left is not None:
                left.take_back(request.folders)
            reply = FetchedMounts(len(trees))
        except (OSError, MemoryError) as error:
            reply = FetchedMounts(error=str(error))
        _reply(stream, reply, [tree.descriptor for tree in trees])
        for tree in trees:
            os.close(tree.descriptor)


def _take_back_at_end(stream: socket.socket, left: LeftFiles) -> None:
    left.take_back()
    try:
        stream.send(b"x")  # to a server that waits for it. Its cells had ended before
    except OSError:  # it was killed: the kernel may still be ending its cells, which make files
        for _ in range(_PASSES):
            time.sleep(_PASS_INTERVAL)
            left.take_back()


def _reply(stream: socket.socket, reply: FetchedMounts, descriptors: list[int]) -> None:
    """Send a reply. If that fails, send the error instead: the server waits for one in order."""
    try:
        socket.send_fds(stream, [encode_packet(reply)], descriptors)
    except (OSError, MemoryError) as error:
        packet = encode_packet(FetchedMounts(error=str(error)))
        retry(lambda: stream.send(packet))
