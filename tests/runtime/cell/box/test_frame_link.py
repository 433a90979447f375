"""The stream of a box: nothing waits at it, and a full one says so."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from cellblock.runtime import protocol
from cellblock.runtime.cell.box.frame_link import FrameLink
from cellblock.runtime.cell.poll_loop import PollLoop

LARGE = protocol.encode(protocol.STDOUT, 7, bytes(1 << 20))


class Ends:
    """A link, its peer, and what the link has reported."""

    def __init__(self) -> None:
        self.loop = PollLoop()
        ours, self.peer = socket.socketpair()
        self.peer.setblocking(False)
        self.events = list[object]()
        self.link = FrameLink(
            self.loop,
            ours,
            lambda frame: self.events.append(frame.payload),
            lambda: self.events.append("end"),
            lambda: self.events.append(f"full: {self.link.is_full}"),
        )

    def turn(self) -> None:
        """Handle the events of this moment."""
        self.loop.run_once(time.monotonic() + 0.01)

    def received(self) -> bytes:
        """Return what the peer can read now."""
        data = b""
        try:
            while piece := self.peer.recv(1 << 16):
                data += piece
        except BlockingIOError:
            pass
        return data


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.link.close()
    ends.peer.close()


def test_a_full_link_says_so_and_sends_the_rest_later(ends: Ends) -> None:
    ends.link.send(LARGE)
    assert ends.events == ["full: True"]
    data = b""
    while len(data) < len(LARGE):
        data += ends.received()
        ends.turn()
    assert data == LARGE
    assert ends.events == ["full: True", "full: False"]


def test_a_held_link_reads_nothing(ends: Ends) -> None:
    ends.link.hold(True)
    ends.peer.send(protocol.encode(protocol.CANCEL, 1, b"x"))
    ends.turn()
    assert ends.events == []
    ends.link.hold(False)
    ends.turn()
    assert ends.events == [b"x"]


def test_the_end_is_reported_once(ends: Ends) -> None:
    ends.peer.close()
    ends.turn()
    ends.turn()
    ends.link.send(LARGE)
    assert ends.events == ["end"]


def test_what_is_no_frame_is_the_end(ends: Ends) -> None:
    ends.peer.send(b"\xff" * 20)
    ends.turn()
    assert ends.events == ["end"]


def test_a_held_link_without_a_peer_does_not_keep_the_process_busy(ends: Ends) -> None:
    ends.link.hold(True)
    ends.link.send(LARGE)
    ends.peer.close()
    ends.turn()
    started = time.process_time()
    ends.loop.run_once(time.monotonic() + 0.2)
    ends.loop.run_once(time.monotonic() + 0.2)
    assert time.process_time() - started < 0.1
