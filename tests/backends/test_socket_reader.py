"""The ear: what comes on a socket is heard on the loop that was last asked to, whatever the others are doing."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Generator

import pytest

from cellblock.backends.socket_reader import Ear


class Heard:
    """An ear, the other end of its socket, and in which thread what came was read."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.found: list[tuple[bytes, str]] = []
        self.ear = Ear(self.ours, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.found.append((self.ours.recv(100), threading.current_thread().name))

    def says(self, text: bytes, thread: str) -> bool:
        """Send `text`; tell whether, and soon, it was heard in `thread`, once."""
        self.theirs.send(text)
        return (
            soon(lambda: bool(self.found)) and self.found.pop() == (text, thread) and not self.found
        )


@pytest.fixture
def heard() -> Generator[Heard]:
    heard = Heard()
    yield heard
    heard.ear.end()
    heard.ours.close()
    heard.theirs.close()


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


def soon(condition: Callable[[], bool]) -> bool:
    for _ in range(1000):
        if condition():
            return True
        threading.Event().wait(0.01)
    return False


def listen(ear: Ear, loop: asyncio.AbstractEventLoop) -> bool:
    async def on_it() -> bool:
        return ear.listen(loop)

    return asyncio.run_coroutine_threadsafe(on_it(), loop).result(10)


def test_what_comes_is_heard_on_the_loop_that_was_asked_last(heard: Heard) -> None:
    with loop_in_thread("one") as one, loop_in_thread("two") as two:
        for loop, name in ((one, "one"), (two, "two"), (one, "one"), (one, "one")):
            assert listen(heard.ear, loop)
            assert heard.ear.loop is loop
            assert heard.says(b"news", name)


def test_a_loop_that_is_busy_is_not_waited_for(heard: Heard) -> None:
    let_go = threading.Event()
    with loop_in_thread("one") as one, loop_in_thread("two") as two:
        listen(heard.ear, one)
        one.call_soon_threadsafe(let_go.wait)
        assert listen(heard.ear, two)
        assert heard.says(b"news", "two")
        let_go.set()
        assert heard.says(b"more", "two")


def test_a_loop_that_is_over_is_not_waited_for(heard: Heard) -> None:
    for _ in range(3):
        with loop_in_thread("one") as one:
            listen(heard.ear, one)
    with loop_in_thread("two") as two:
        assert listen(heard.ear, two)
        assert heard.says(b"news", "two")


def test_descriptors_of_loops_that_it_has_left_are_closed(heard: Heard) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with loop_in_thread("one") as one, loop_in_thread("two") as two:
        listen(heard.ear, one)
        with_both = len(os.listdir("/proc/self/fd"))
        for loop in (two, one) * 10:
            listen(heard.ear, loop)
        assert soon(lambda: len(os.listdir("/proc/self/fd")) == with_both)
        heard.ear.end()
        assert not listen(heard.ear, one), "it has ended"
    assert soon(lambda: len(os.listdir("/proc/self/fd")) == before)


def test_nothing_is_heard_while_it_rests(heard: Heard) -> None:
    with loop_in_thread("one") as one:
        listen(heard.ear, one)
        heard.ear.rest()
        heard.theirs.send(b"news")
        threading.Event().wait(0.1)
        assert heard.found == []
        listen(heard.ear, one)
        assert soon(lambda: heard.found == [(b"news", "one")])


class Deaf(asyncio.SelectorEventLoop):
    """A loop that cannot watch sockets, as there are some."""

    def add_reader(self, fd: object, callback: object, *args: object) -> None:
        raise NotImplementedError


def test_a_loop_that_cannot_watch_sockets_is_left_alone(heard: Heard) -> None:
    deaf = Deaf()
    with loop_in_thread("one") as one:
        listen(heard.ear, one)
        before = len(os.listdir("/proc/self/fd"))
        assert not heard.ear.listen(deaf)
        assert len(os.listdir("/proc/self/fd")) == before
        assert heard.says(b"news", "one")
    deaf.close()
