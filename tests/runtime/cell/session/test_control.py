"""The session's end of its control stream: whole frames, each with its own descriptors."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from cellblock.runtime import protocol
from cellblock.runtime.cell.session.control import Control

DATA = protocol.encode(protocol.SESSION_DATA, 1, b"data")
ORDER = protocol.encode(protocol.SESSION_REQUEST, 2, json.dumps({"op": "run"}).encode())
LARGE = protocol.encode(protocol.SESSION_DATA, 3, b"a" * (1 << 20))


class Stream:
    """A control stream with both of its ends."""

    def __init__(self) -> None:
        self.server, peer = socket.socketpair()
        self.control = Control(peer.detach())
        self.interrupts = 0

    def on_interrupt(self, _number: int, code: FrameType | None) -> None:
        """Raise as a session does."""
        self.interrupts += 1
        if not self.control.defers_interrupt(code):
            raise KeyboardInterrupt


@pytest.fixture
def stream() -> Iterator[Stream]:
    stream = Stream()
    before = signal.signal(signal.SIGINT, stream.on_interrupt)
    try:
        yield stream
    finally:
        signal.signal(signal.SIGINT, before)
        stream.server.close()
        stream.control.close()


def test_descriptors_come_with_their_frame_however_the_stream_is_cut(stream: Stream) -> None:
    reader, writer = os.pipe()
    os.close(writer)
    stream.server.sendall(DATA)
    socket.send_fds(stream.server, [ORDER[:10]], [reader])
    stream.server.sendall(ORDER[10:] + DATA)
    assert stream.control.receive() == (protocol.Frame(protocol.SESSION_DATA, 1, b"data"), [])
    frame, descriptors = stream.control.receive()
    assert (frame.run, len(descriptors)) == (2, 1)
    assert os.read(descriptors[0], 1) == b""
    assert stream.control.receive() == (protocol.Frame(protocol.SESSION_DATA, 1, b"data"), [])
    for descriptor in (reader, *descriptors):
        os.close(descriptor)


def _interrupt_after(name: str) -> Callable[[FrameType, str, object], None]:
    """Return a profile function that interrupts when the built-in function `name` returns."""

    def profile(_code: FrameType, event: str, function: object) -> None:
        if event == "c_return" and getattr(function, "__name__", "") == name:
            signal.raise_signal(signal.SIGINT)

    return profile


def test_an_interrupt_loses_nothing_of_what_was_received(stream: Stream) -> None:
    stream.server.sendall(DATA + ORDER[:10])
    sys.setprofile(_interrupt_after("recvmsg"))
    try:
        with pytest.raises(KeyboardInterrupt):
            stream.control.receive()
    finally:
        sys.setprofile(None)
    stream.server.sendall(ORDER[10:])
    assert [stream.control.receive()[0].run for _ in range(2)] == [1, 2]


def _main_thread_waits() -> bool:
    status = Path(f"/proc/self/task/{os.getpid()}/stat").read_text()
    return status.rpartition(")")[2].split()[0] == "S"


def test_an_interrupt_ends_the_wait_for_a_frame(stream: Stream) -> None:
    def interrupt() -> None:
        while not _main_thread_waits():
            pass
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)

    def receive() -> None:
        thread.start()
        stream.control.receive()

    with pytest.raises(KeyboardInterrupt):
        receive()
    thread.join()
    stream.server.sendall(DATA)
    assert stream.control.receive()[0].payload == b"data"


def test_an_interrupt_does_not_cut_a_frame_that_is_sent(stream: Stream) -> None:
    decoder, runs = protocol.Decoder(), list[int]()

    def serve() -> None:
        runs.extend(frame.run for frame in decoder.feed(stream.server.recv(10)))
        while not _main_thread_waits():  # until the rest does not fit into the buffer
            pass
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        while data := stream.server.recv(1 << 16):
            runs.extend(frame.run for frame in decoder.feed(data))

    server = threading.Thread(target=serve)
    server.start()
    with pytest.raises(KeyboardInterrupt):
        stream.control.send_frame(LARGE)
    stream.control.send_frame(ORDER)
    stream.control.close()
    server.join()
    assert (runs, stream.interrupts) == ([3, 2], 1)
