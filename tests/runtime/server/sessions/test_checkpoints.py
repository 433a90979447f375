"""Checkpoints as the server sees them. The checkpoint process here is real, and slow."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator

from cellblock.runtime.linux import syscalls
from cellblock.runtime.messages import Answer
from cellblock.runtime.server.cgroups import CellCgroups
from cellblock.runtime.server.sessions.channel import Channel
from cellblock.runtime.server.sessions.checkpoints import CheckpointHandle, CheckpointSet
from cellblock.runtime.server.sessions.init_handle import SessionInitHandle
from cellblock.runtime.session_orders import SaveVariables

SLOW_CHECKPOINT = """
import socket, sys, time
from cellblock.runtime import protocol
stream = socket.socket(fileno=int(sys.argv[1]))
decoder = protocol.Decoder()
while data := stream.recv(65536):
    for frame in decoder.feed(data):
        time.sleep(0.3)
        print("obeyed", flush=True)
        stream.sendall(protocol.encode_json(protocol.SESSION_REPLY, frame.run, {}))
"""


class SelectLoop:
    """The part of the server's event loop that a channel needs."""

    is_full = False

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[], None]] = {}

    def register(
        self,
        descriptor: int,
        handler: Callable[[], None],
        flags: int = 0,
        on_fault: Callable[[Exception], None] | None = None,
    ) -> None:
        self._handlers[descriptor] = handler

    def unregister(self, descriptor: int, *, closing: bool = False) -> None:
        self._handlers.pop(descriptor, None)

    def pause_reading(self, descriptor: int, flags: int) -> None:
        raise AssertionError("`is_full` is never True")

    def run_until(self, condition: Callable[[], bool], failure: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, failure
            for descriptor in select.select(list(self._handlers), [], [], 0.05)[0]:
                self._handlers[descriptor]()


@contextlib.contextmanager
def slow_checkpoint(peer_fd: int) -> Generator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-c", SLOW_CHECKPOINT, str(peer_fd)]
    with subprocess.Popen(
        argv, pass_fds=(peer_fd,), env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def test_a_stopped_checkpoint_carries_out_two_orders() -> None:
    loop = SelectLoop()
    handle = CheckpointHandle(loop, 0, lambda: None)
    with slow_checkpoint(handle.channel.peer_fd) as process:
        handle.channel.close_peer()
        handle.set_pid(process.pid)
        os.kill(process.pid, signal.SIGSTOP)  # as user code may do
        for _ in range(2):
            handle.send_order(SaveVariables(), [])
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["obeyed\n"] * 2
        handle.drop()
        loop.run_until(lambda: not handle.channel.open, "its end is not noticed")


def test_a_dropped_checkpoint_counts_as_a_checkpoint_until_its_process_is_gone() -> None:
    loop = SelectLoop()
    checkpoints = CheckpointSet(loop, lambda: None)
    main = Channel(loop, print, print)
    checkpoints.begin_named(main, b"x", 0)
    (handle,) = checkpoints.handles()
    with socket.socket(fileno=os.dup(main.peer_fd)) as session:
        _, (peer_fd,), _, _ = socket.recv_fds(session, 1, 1)
    main.close()
    with slow_checkpoint(peer_fd) as process:
        os.close(peer_fd)
        checkpoints.assign_pid(process.pid)
        checkpoints.finish_named("name", Answer())
        checkpoints.drop_named("name")
        assert (checkpoints.named, checkpoints.handles(), handle.alive) == ({}, [], False)
        assert process.pid in checkpoints.pids()
        loop.run_until(lambda: checkpoints.pids() == set(), "it does not end")
        assert process.wait() == -signal.SIGKILL


PARENT_THAT_EXITS = """
import os, time
if pid := os.fork():
    print(pid, flush=True)
else:
    time.sleep(60)
"""


def test_a_checkpoint_is_found_after_the_session_that_forked_it_has_ended() -> None:
    init = SessionInitHandle(
        SelectLoop(), "session-1", CellCgroups.create(None), print, print, print
    )
    init.pid = os.getpid()  # stands for the first process of the cell, which adopts orphans
    syscalls.become_subreaper()
    with subprocess.Popen(
        [sys.executable, "-c", PARENT_THAT_EXITS], stdout=subprocess.PIPE, text=True
    ) as session:
        assert session.stdout is not None
        checkpoint = int(session.stdout.readline())
        session.wait()
        try:
            assert init.find_child(session.pid, checkpoint, set()) == checkpoint
            assert init.find_child(session.pid, checkpoint, {checkpoint}) == 0
        finally:
            os.kill(checkpoint, signal.SIGKILL)
            os.waitpid(checkpoint, 0)
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 0)
            init.close_peer()
            init.pid = 0
            init.close()
