"""A session is closed, or its branch dies, while the branch is being made."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from cellblock import (
    CellblockError,
    CheckpointError,
    CodeBlock,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
)
from cellblock.backends.connection import Connection
from cellblock.runtime import protocol
from cellblock.runtime.linux.process_tree import descendants
from cellblock.testing.liveness import wait_until
from tests.executors.session.live_session import open_server, run_async

pytestmark = pytest.mark.depends_on_user

# The session answers, but the process of its branch never starts.
_IN_THE_BRANCH = """
import os, time
def hook():
    reached.write(b"x")
    time.sleep(3600)
os.register_at_fork(before=hook)
"""
# The session never answers.
_IN_THE_SESSION = """
import io, os, time
class Stuck(io.TextIOWrapper):
    count = 0
    def flush(self):
        self.count += 1
        if self.count > 1:  # the first time, the caller copies the work folder
            reached.write(b"x")
            time.sleep(3600)
stuck = Stuck(open('stuck', 'wb'))
"""
# The session answers when there is a file `go`.
_UNTIL_GO = _IN_THE_SESSION.replace(
    "time.sleep(3600)", "while not os.path.exists('go'): time.sleep(0.01)"
)
_HANG_SECONDS = 20  # less than the 30 s after which the server gives up a fork


@contextlib.contextmanager
def final_frames(patch: pytest.MonkeyPatch) -> Generator[collections.Counter[int]]:
    """Count the final frames of each run that arrive from servers."""
    decoders = dict[Connection, protocol.Decoder]()
    counts = collections.Counter[int]()
    receive: Callable[[Connection, bytes], None] = Connection._on_data

    def on_data(connection: Connection, data: bytes) -> None:
        final = (protocol.ENDED, protocol.SESSION_REPLY, protocol.FAILED)
        decoder = decoders.setdefault(connection, protocol.Decoder())
        counts.update(frame.run for frame in decoder.feed(data) if frame.kind in final)
        receive(connection, data)

    with patch.context() as patched:
        patched.setattr(Connection, "_on_data", on_data)
        yield counts


def namespaces_below(server: int) -> set[str]:
    """Return the process namespaces of all processes below the server."""
    found = set[str]()
    for pid in descendants(server):
        with contextlib.suppress(OSError):  # it has ended
            found.add(os.readlink(f"/proc/{pid}/ns/pid"))
    return found


class ForkUnderWay:
    """A session that is being forked: `code` has been reached, and its server has another one."""

    def __init__(self, server: SandboxSessionServer) -> None:
        self.session, self.other = (
            SandboxSessionCodeExecutor(server=server, checkpoints=False) for _ in range(2)
        )

    async def begin(self, code: str) -> None:
        """Start the sessions, and the fork."""
        await self.other.start()
        await self.session.start()
        self.server_pid = self.other.place.require_connection().pid
        await self.session.set("code", f"reached = open('reached', 'wb', buffering=0)\n{code}")
        block = CodeBlock("exec(code); print(os.readlink('/proc/self/ns/pid'))", "python")
        result = await self.session.execute_code_blocks([block])
        self.cell = result.check().output.strip()
        assert self.cell in namespaces_below(self.server_pid)
        self.fork = asyncio.ensure_future(self.session.fork())
        reached = self.session.work_dir / "reached"
        await wait_until(
            lambda: reached.stat().st_size > 0 or self.fork.done(), "the fork is under way"
        )
        assert not self.fork.done(), await self.fork


@pytest.mark.parametrize("code", [_IN_THE_BRANCH, _IN_THE_SESSION], ids=["branch", "session"])
def test_closing_a_session_ends_its_fork_under_way(
    code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(server: SandboxSessionServer, counts: collections.Counter[int]) -> None:
        under_way = ForkUnderWay(server)
        async with under_way.other, under_way.session:
            await under_way.begin(code)
            await under_way.session.stop()
            with pytest.raises(CellblockError):
                await under_way.fork
            # The cell of the branch is below that of the session.
            await wait_until(
                lambda: under_way.cell not in namespaces_below(under_way.server_pid),
                "the cell ends",
                _HANG_SECONDS,
            )
            # What the server sends later arrives before its answer.
            await under_way.other.set("x", 1)
            assert set(counts.values()) == {1}

    with final_frames(monkeypatch) as counts, open_server() as server:
        run_async(main(server, counts))


def first_process_in(namespace: str, server: int) -> int:
    """Return the process that is process 1 of a process namespace."""
    for pid in descendants(server):
        with contextlib.suppress(OSError):  # it has ended
            own = Path(f"/proc/{pid}/status").read_text()
            ids = next(line for line in own.splitlines() if line.startswith("NSpid:")).split()
            if os.readlink(f"/proc/{pid}/ns/pid") == namespace and ids[-1] == "1":
                return pid
    raise AssertionError(f"{namespace} has no first process")


def test_a_session_whose_branch_dies_is_ready_when_the_error_comes(
    shared: SandboxSessionServer,
) -> None:
    async def main() -> None:
        under_way = ForkUnderWay(shared)
        session, other = under_way.session, under_way.other
        async with other, session:
            await under_way.begin(_UNTIL_GO)
            init = first_process_in(under_way.cell, under_way.server_pid)
            (branch,) = namespaces_below(init) - {under_way.cell}
            os.kill(first_process_in(branch, init), signal.SIGKILL)
            await wait_until(lambda: branch not in namespaces_below(init), "the branch ends")
            await other.set("x", 1)  # the server has seen that by now
            later = asyncio.ensure_future(
                session.execute_code_blocks([CodeBlock("print(code != '')", "python")])
            )
            await other.set("x", 2)
            (session.work_dir / "go").touch()
            with pytest.raises(CheckpointError):
                await under_way.fork
            assert (await later).check().output == "True\n"

    run_async(main())
