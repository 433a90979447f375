"""The frozen copy of a session, as the server treats it; its process here is a real one, and slow."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator

from cellblock.runtime.linux import syscalls
from cellblock.runtime.server.sessions.checkpoints import Copies, Keeper
from cellblock.runtime.server.sessions.first_process import House
from cellblock.runtime.server.usage import Groups

SLOW = """
import socket, sys, time
from cellblock.runtime import protocol
link = socket.socket(fileno=int(sys.argv[1]))
decoder = protocol.Decoder()
while data := link.recv(65536):
    for frame in decoder.feed(data):
        time.sleep(0.3)
        print("obeyed", flush=True)
        link.sendall(protocol.encode_json(protocol.ANSWER, frame.run, {}))
"""


class Loop:
    """What a channel needs of the server."""

    is_full = False

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[], None]] = {}

    def watch(self, descriptor: int, handler: Callable[[], None], flags: int = 0) -> None:
        self._handlers[descriptor] = handler

    def forget(self, descriptor: int, *, is_to_be_closed: bool = False) -> None:
        self._handlers.pop(descriptor, None)

    def hold(self, descriptor: int, flags: int) -> None:
        raise AssertionError("there is room")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, what
            for descriptor in select.select(list(self._handlers), [], [], 0.05)[0]:
                self._handlers[descriptor]()


@contextlib.contextmanager
def process_behind(inner: int) -> Generator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-c", SLOW, str(inner)]
    with subprocess.Popen(
        argv, pass_fds=(inner,), env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def test_a_copy_that_was_stopped_and_gets_two_orders_obeys_both() -> None:
    loop = Loop()
    keeper = Keeper(loop, 0, lambda: None)
    with process_behind(keeper.channel.hand_over()) as process:
        keeper.channel.sent()
        keeper.adopt(process.pid)
        os.kill(process.pid, signal.SIGSTOP)  # as code may do
        for _ in range(2):
            keeper.order({}, [])
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["obeyed\n"] * 2
        keeper.drop()
        loop.until(lambda: not keeper.channel.open, "its end is not seen")


def test_a_copy_that_is_dropped_is_no_process_of_codes_until_it_is_gone() -> None:
    loop = Loop()
    copies = Copies(loop, lambda: None)
    keeper = copies.begin_mark(0)
    with process_behind(keeper.channel.hand_over()) as process:
        keeper.channel.sent()
        copies.adopt(process.pid)
        copies.end_mark("mark", {})
        copies.drop("mark")
        assert (copies.marks, copies.all(), keeper.alive) == ({}, [], False)
        assert process.pid in copies.pids()
        loop.until(lambda: copies.pids() == set(), "it does not go")
        assert process.wait() == -signal.SIGKILL


ORPHAN = """
import os, time
if pid := os.fork():
    print(pid, flush=True)
else:
    time.sleep(60)
"""


def test_a_copy_is_found_though_who_made_it_has_ended() -> None:
    house = House(Loop(), "session-1", Groups.make(None), print, print, print)
    house.pid = os.getpid()  # as the first process of the cell, whose children all orphans become
    syscalls.adopt_orphans()
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        orphan = int(maker.stdout.readline())
        maker.wait()
        try:
            assert house.child(maker.pid, orphan, set()) == orphan
            assert house.child(maker.pid, orphan, {orphan}) == 0
        finally:
            os.kill(orphan, signal.SIGKILL)
            os.waitpid(orphan, 0)
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 0)
            house.shown_in()
            house.pid = 0
            house.close()
