"""A process that is forked once for all branches of a fork, and forks a process for each."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Generator, Iterable

from ...handshake import MAX_MOUNTS, MAX_PACKET
from ...messages import ForkNext, OrderResult
from ...packets import decode_packet, encode_packet


def helper_orders(link: socket.socket) -> Generator[tuple[ForkNext, list[int]]]:
    """Ask the server for orders, and yield each with its descriptors, until `link` is closed.

    The descriptors are closed afterwards, unless the caller leaves the loop.
    """
    while True:
        link.send(encode_packet(OrderResult()))
        data, descriptors, _, _ = socket.recv_fds(
            link, MAX_PACKET, 1 + MAX_MOUNTS, socket.MSG_CMSG_CLOEXEC
        )
        if not data:
            return
        yield decode_packet(data, ForkNext), descriptors
        close_all(descriptors)


@contextlib.contextmanager
def reporting_errors(link: socket.socket) -> Generator[None]:
    """Report an error of the helper to the server, and end the helper."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(OSError):
            link.send(encode_packet(OrderResult(f"{type(error).__name__}: {error}")))
        os._exit(1)


def close_all(descriptors: Iterable[int]) -> None:
    """Close `descriptors`."""
    for descriptor in descriptors:
        os.close(descriptor)
