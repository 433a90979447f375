"""The socket reader: data is read on the last loop, whatever the other loops do."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Generator

import pytest

from cellblock.backends.socket_reader import SocketReader


class ReaderUnderTest:
    """A socket reader, the other end of its socket, and the received data with its thread."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.received: list[tuple[bytes, str]] = []
        self.reader = SocketReader(self.ours, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.received.append((self.ours.recv(100), threading.current_thread().name))

    def is_received_in(self, text: bytes, thread: str) -> bool:
        """Send `text`. Return True if it soon arrives in `thread`, once."""
        self.theirs.send(text)
        return (
            is_soon_true(lambda: bool(self.received))
            and self.received.pop() == (text, thread)
            and not self.received
        )


@pytest.fixture
def tested() -> Generator[ReaderUnderTest]:
    tested = ReaderUnderTest()
    yield tested
    tested.reader.stop()
    tested.ours.close()
    tested.theirs.close()


@contextlib.contextmanager
def loop_in_thread(name: str) -> Generator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=name)
    thread.start()
    yield loop
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def is_soon_true(condition: Callable[[], bool]) -> bool:
    for _ in range(1000):
        if condition():
            return True
        threading.Event().wait(0.01)
    return False


def read_on(reader: SocketReader, loop: asyncio.AbstractEventLoop) -> bool:
    async def on_it() -> bool:
        return reader.read_on(loop)

    return asyncio.run_coroutine_threadsafe(on_it(), loop).result(10)


def test_data_is_read_on_the_last_loop(tested: ReaderUnderTest) -> None:
    with loop_in_thread("one") as one, loop_in_thread("two") as two:
        for loop, name in ((one, "one"), (two, "two"), (one, "one"), (one, "one")):
            assert read_on(tested.reader, loop)
            assert tested.reader.loop is loop
            assert tested.is_received_in(b"news", name)


def test_busy_loop_does_not_delay_the_next_one(tested: ReaderUnderTest) -> None:
    unblock = threading.Event()
    with loop_in_thread("one") as one, loop_in_thread("two") as two:
        read_on(tested.reader, one)
        one.call_soon_threadsafe(unblock.wait)
        assert read_on(tested.reader, two)
        assert tested.is_received_in(b"news", "two")
        unblock.set()
        assert tested.is_received_in(b"more", "two")


def test_closed_loop_does_not_delay_the_next_one(tested: ReaderUnderTest) -> None:
    for _ in range(3):
        with loop_in_thread("one") as one:
            read_on(tested.reader, one)
    with loop_in_thread("two") as two:
        assert read_on(tested.reader, two)
        assert tested.is_received_in(b"news", "two")


def test_descriptors_of_previous_loops_are_closed(tested: ReaderUnderTest) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with loop_in_thread("one") as one, loop_in_thread("two") as two:
        read_on(tested.reader, one)
        with_both = len(os.listdir("/proc/self/fd"))
        for loop in (two, one) * 10:
            read_on(tested.reader, loop)
        assert is_soon_true(lambda: len(os.listdir("/proc/self/fd")) == with_both)
        tested.reader.stop()
        assert not read_on(tested.reader, one), "it is stopped"
    assert is_soon_true(lambda: len(os.listdir("/proc/self/fd")) == before)


def test_nothing_is_read_while_paused(tested: ReaderUnderTest) -> None:
    with loop_in_thread("one") as one:
        read_on(tested.reader, one)
        tested.reader.pause()
        tested.theirs.send(b"news")
        threading.Event().wait(0.1)
        assert tested.received == []
        read_on(tested.reader, one)
        assert is_soon_true(lambda: tested.received == [(b"news", "one")])


class LoopWithoutReaders(asyncio.SelectorEventLoop):
    """A loop that cannot watch sockets; some event loops cannot."""

    def add_reader(self, fd: object, callback: object, *args: object) -> None:
        raise NotImplementedError


def test_loop_without_socket_support_is_refused(tested: ReaderUnderTest) -> None:
    unsupported = LoopWithoutReaders()
    with loop_in_thread("one") as one:
        read_on(tested.reader, one)
        before = len(os.listdir("/proc/self/fd"))
        assert not tested.reader.read_on(unsupported)
        assert len(os.listdir("/proc/self/fd")) == before
        assert tested.is_received_in(b"news", "one")
    unsupported.close()
