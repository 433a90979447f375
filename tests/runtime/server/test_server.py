"""The cell server's processes: who is whose child, and that nobody is left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cellblock import CodeBlock, SandboxCommandLineCodeExecutor
from cellblock.runtime import protocol
from cellblock.runtime.linux.process_tree import children, descendants
from cellblock.runtime.server.client import Client, Post
from cellblock.runtime.server.event_loop import Loop

IDLE = 5  # the porter, two zygotes, and a cell of two processes


async def until_idle(server: int) -> None:
    for _ in range(500):
        if len(descendants(server)) == IDLE:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{len(descendants(server))} processes, not {IDLE}")


def test_all_of_a_sandbox_hangs_below_the_server_and_goes_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        executor = SandboxCommandLineCodeExecutor(work_dir=tmp_path)
        await executor.start()
        assert executor._connection is not None
        server = executor._connection.pid
        await until_idle(server)
        assert len(children(server)) == 2, "the porter and the zygote are not the server's children"
        below = descendants(server)
        os.kill(server, signal.SIGKILL)
        for _ in range(500):
            if not any(Path(f"/proc/{pid}").exists() for pid in below):
                break
            await asyncio.sleep(0.02)
        else:
            raise AssertionError("processes of the sandbox outlived a killed server")
        await executor.stop()

    asyncio.run(main())


def test_cells_that_are_needed_no_more_go(tmp_path: Path) -> None:
    async def main() -> None:
        async with SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
            assert executor._connection is not None
            server = executor._connection.pid
            await until_idle(server)
            block = CodeBlock("import time; time.sleep(0.5)", "python")
            running = asyncio.gather(*(executor.execute_code_blocks([block]) for _ in range(16)))
            await asyncio.sleep(0.4)
            assert len(descendants(server)) > IDLE + 10
            assert {result.exit_code for result in await running} == {0}
            many = len(descendants(server))
            await asyncio.sleep(3)
            assert len(descendants(server)) > many - 6, (
                "they went before their callers could come again"
            )
            many = len(descendants(server))
            while len(descendants(server)) >= many:
                await asyncio.sleep(0.02)
            await asyncio.sleep(1)
            few = len(descendants(server))
            assert few > IDLE, "all go at once, and have to be made again for the next callers"
            while len(descendants(server)) == few:
                await asyncio.sleep(0.02)

    asyncio.run(main())


def test_a_block_ends_by_a_signal_that_its_caller_ignores() -> None:
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from cellblock import CodeBlock\nfrom cellblock.sync import SandboxCommandLineCodeExecutor\n"
        "with SandboxCommandLineCodeExecutor(timeout=10) as executor:\n"
        "    block = CodeBlock('import os, time; os.kill(os.getpid(), 1); time.sleep(60)', 'python')\n"
        "    print(executor.execute_code_blocks([block]).exit_code)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "129\n", done.stdout + done.stderr


def test_answers_go_out_together_where_more_blocks_wait_than_that_many_callers_could_ask_for() -> (
    None
):
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = Loop()
    client = Client(loop, ours.fileno(), ours.fileno(), protocol.Decoder(), lambda _client: None)
    client.serve([])
    client.answer(b"alone", 1)
    assert theirs.recv(100) == b"alone"
    for count in range(7):
        client.answer(b"%d" % count, 8)
        with pytest.raises(BlockingIOError):
            theirs.recv(100)
    client.answer(b"7", 8)
    assert theirs.recv(100) == b"01234567"
    client.answer(b"the last", 8)
    loop.note(client)
    while client._outgoing:
        loop.turn()
    assert theirs.recv(100) == b"the last"
    for one in (ours, theirs):
        one.close()


def test_answers_of_all_streams_go_out_when_those_of_one_do() -> None:
    loop, post = Loop(), Post()
    pairs = [socket.socketpair() for _ in range(2)]
    clients = [
        Client(
            loop, ours.fileno(), ours.fileno(), protocol.Decoder(), lambda _client: None, post=post
        )
        for ours, _ in pairs
    ]
    for client, (_, theirs) in zip(clients, pairs, strict=True):
        theirs.setblocking(False)
        client.serve([])
    clients[0].answer(b"early", 8)
    with pytest.raises(BlockingIOError):
        pairs[0][1].recv(100)
    clients[1].answer(b"now", 0)
    assert [theirs.recv(100) for _, theirs in pairs] == [b"early", b"now"]
    assert not post.waiting
    for one in (*pairs[0], *pairs[1]):
        one.close()


def test_what_the_caller_did_not_take_at_once_is_sent_when_it_has_read() -> None:
    ours, theirs = socket.socketpair()
    loop = Loop()
    client = Client(loop, ours.fileno(), ours.fileno(), protocol.Decoder(), lambda _client: None)
    ours.setblocking(False)
    size = 8 << 20

    def serve() -> None:
        client.send(b"x" * size)
        client.flush()
        while client._outgoing:
            loop.turn()

    with ThreadPoolExecutor(1) as threads:
        served = threads.submit(serve)
        left = size
        while left:
            time.sleep(0.001)
            left -= len(theirs.recv(left))
        served.result()
    for one in (ours, theirs):
        one.close()
