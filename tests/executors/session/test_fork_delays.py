"""Nobody waits for ever for a fork that the session's own code holds up: who asked is told, and the session goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path

import pytest

from cellblock import CheckpointError, SandboxSessionCodeExecutor, SandboxSessionServer
from cellblock.runtime.linux.process_tree import descendants
from cellblock.testing.subject import until
from tests.executors.session.live_session import Live, server, wait

# Code may have something done before each fork: here, nothing ever again.
HELD = "import os, time; os.register_at_fork(before=lambda: time.sleep(3600)); kept = 1"


def session(server: SandboxSessionServer | None) -> Live:
    return Live(SandboxSessionCodeExecutor(server=server, checkpoints=False))


@pytest.mark.timeout(180)
def test_a_fork_that_code_holds_up_ends_in_an_error() -> None:
    with (
        server() as shared,
        session(shared) as itself,
        session(shared) as forked,
        session(shared) as restored,
    ):
        marks = {
            live: live.checkpoint() for live in (itself, forked, restored) if not live.done(HELD)
        }

        async def all_three() -> tuple[object, ...]:
            return await asyncio.gather(
                itself.executor.fork(),
                forked.executor.fork(mark=marks[forked]),
                restored.executor.restore(marks[restored]),
                return_exceptions=True,
            )

        in_itself, in_a_copy, in_a_restored_one = wait(all_three())
        for error in (in_itself, in_a_copy):
            assert isinstance(error, CheckpointError), error
            assert "did not come within 30 s" in str(error)
        assert in_a_restored_one is None, (
            "what code has done at forks is done in a copy that nobody sees"
        )
        assert {live.done("print(kept)") for live in (itself, forked, restored)} == {"1"}
        forked.restore(marks[forked])
        assert forked.done("print(kept)") == "1"


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(
    not os.access(FREEZER, os.W_OK),
    reason="no control groups of version 1 that this user may freeze",
)
def test_a_checkpoint_that_ends_while_it_is_gone_back_to_is_an_error() -> None:
    with session(None) as live:
        live.done("kept = 1")
        mark = live.checkpoint()
        assert isinstance(live.executor, SandboxSessionCodeExecutor)
        assert live.executor._connection is not None
        (keeper,) = [pid for pid in descendants(live.executor._connection.pid) if is_deaf(pid)]
        group = Path(tempfile.mkdtemp(dir=FREEZER))
        try:
            (group / "cgroup.procs").write_text(str(keeper))
            (group / "freezer.state").write_text("FROZEN")

            async def restored() -> None:
                restoring = asyncio.ensure_future(live.executor.restore(mark))
                await asyncio.sleep(2)
                assert not restoring.done()
                os.kill(keeper, signal.SIGKILL)
                (group / "freezer.state").write_text("THAWED")
                await restoring

            with pytest.raises(CheckpointError, match="started afresh"):
                wait(restored())
        finally:
            (group / "freezer.state").write_text("THAWED")
            asyncio.run(until(lambda: not (group / "cgroup.procs").read_text(), "the copy is gone"))
            group.rmdir()
        assert live.run("print('kept' in dir())").stdout == "False\n"


def is_deaf(pid: int) -> bool:
    """Tell whether process `pid` lets all signals wait, as copies of sessions do."""
    blocked = Path(f"/proc/{pid}/status").read_text().partition("SigBlk:")[2].split()[0]
    return bool(int(blocked, 16) & 1 << signal.SIGUSR1 - 1)
