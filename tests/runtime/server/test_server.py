"""The processes and the event loop of the runtime server."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cellblock import CodeBlock, SandboxCommandLineCodeExecutor
from cellblock.runtime import protocol
from cellblock.runtime.linux.process_tree import children, descendants, has_ended
from cellblock.runtime.server.client import Client
from cellblock.runtime.server.event_loop import EventLoop

pytestmark = pytest.mark.depends_on_user

PRELOAD = ["wave"]  # a server of our own: other tests of this process do not preload it
IDLE = 5  # the mount broker, two zygotes, and a cell of two processes


async def until_idle(server: int) -> None:
    while len(descendants(server)) != IDLE:
        await asyncio.sleep(0.02)


async def test_all_processes_of_a_sandbox_are_below_the_server_and_end_with_it(
    tmp_path: Path,
) -> None:
    executor = SandboxCommandLineCodeExecutor(work_dir=tmp_path, preload=PRELOAD)
    await executor.start()
    assert executor.place.connection is not None
    server = executor.place.connection.pid
    await until_idle(server)
    assert len(children(server)) == 2, (
        "the mount broker and the zygote are not children of the server"
    )
    below = descendants(server)
    os.kill(server, signal.SIGKILL)
    while not all(map(has_ended, below)):
        await asyncio.sleep(0.02)
    await executor.stop()


@pytest.mark.slow  # the server waits 10 s
async def test_cells_that_are_not_needed_any_more_end(tmp_path: Path) -> None:
    async with SandboxCommandLineCodeExecutor(work_dir=tmp_path, preload=PRELOAD) as executor:
        assert executor.place.connection is not None
        server = executor.place.connection.pid
        await until_idle(server)
        block = CodeBlock(
            "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)", "python"
        )
        running = asyncio.gather(*(executor.execute_code_blocks([block]) for _ in range(16)))
        while len(descendants(server)) <= IDLE + 10:
            await asyncio.sleep(0.02)
        (tmp_path / "go").touch()
        assert {result.exit_code for result in await running} == {0}
        assert (many := len(descendants(server))) > IDLE + 2
        while len(descendants(server)) >= many:
            await asyncio.sleep(0.02)


def test_a_block_ends_by_sighup_although_its_caller_ignores_it() -> None:
    code = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from cellblock import CodeBlock\n"
        "from cellblock.sync import SandboxCommandLineCodeExecutor\n"
        "with SandboxCommandLineCodeExecutor() as executor:\n"
        "    code = 'import os, time; os.kill(os.getpid(), 1); time.sleep(60)'\n"
        "    block = CodeBlock(code, 'python')\n"
        "    print(executor.execute_code_blocks([block]).exit_code)\n"
    )
    assert _output_of(code) == "129\n"


@pytest.mark.slow
def test_a_stop_interrupts_a_session_although_its_caller_blocks_sigint() -> None:
    code = (
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})\n"  # as Ray does
        "import threading\n"
        "from cellblock import CancellationToken, CodeBlock\n"
        "from cellblock.sync import SandboxSessionCodeExecutor\n"
        "with SandboxSessionCodeExecutor(timeout=20) as executor:\n"
        "    token = CancellationToken()\n"
        "    threading.Timer(0.5, token.cancel).start()\n"
        "    block = CodeBlock('import time\\nwhile True: time.sleep(0.1)', 'python')\n"
        "    result = executor.execute_code_blocks([block], token)\n"
        "    print(result.outcome, result.session_restored)\n"
    )
    assert _output_of(code) == "cancelled False\n"


def _output_of(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_output_that_did_not_fit_is_sent_when_the_caller_has_read() -> None:
    ours, theirs = socket.socketpair()
    loop = EventLoop()
    client = Client(loop, ours.fileno(), ours.fileno(), protocol.Decoder(), lambda _client: None)
    ours.setblocking(False)
    size = 8 << 20

    def serve() -> None:
        client.send(b"x" * size)
        client.flush()
        while client._outgoing:
            loop.run_once()

    with ThreadPoolExecutor(1) as threads:
        served = threads.submit(serve)
        left = size
        while left:
            left -= len(theirs.recv(left))
        served.result()
    for one in (ours, theirs):
        one.close()
