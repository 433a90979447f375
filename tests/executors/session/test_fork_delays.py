"""A fork that the session's own code delays forever raises an error, and the session continues."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path

import pytest

from cellblock import CheckpointError, SandboxSessionCodeExecutor, SandboxSessionServer
from cellblock.runtime.linux.process_tree import descendants
from cellblock.testing.liveness import wait_until
from tests.executors.session.live_session import LiveSession, open_server, run_async

pytestmark = pytest.mark.depends_on_user

# Code can register a hook that runs before each fork. This one never returns.
BLOCK_FORKS = "import os, time; os.register_at_fork(before=lambda: time.sleep(3600)); kept = 1"


def session(server: SandboxSessionServer | None) -> LiveSession:
    return LiveSession(SandboxSessionCodeExecutor(server=server, checkpoints=False))


@pytest.mark.slow  # the server waits 30 s
@pytest.mark.timeout(180)
def test_a_fork_that_code_delays_forever_raises() -> None:
    with (
        open_server() as shared,
        session(shared) as itself,
        session(shared) as forked,
        session(shared) as restored,
    ):
        checkpoints = {
            live: live.checkpoint()
            for live in (itself, forked, restored)
            if not live.run_ok(BLOCK_FORKS)
        }

        async def fork_and_restore() -> tuple[object, ...]:
            return await asyncio.gather(
                itself.executor.fork(),
                forked.executor.fork(checkpoint=checkpoints[forked]),
                restored.executor.restore(checkpoints[restored]),
                return_exceptions=True,
            )

        fork_error, checkpoint_fork_error, restored_result = run_async(fork_and_restore())
        for error in (fork_error, checkpoint_fork_error):
            assert isinstance(error, CheckpointError), error
            assert "did not start within 30 s" in str(error)
        assert restored_result is None, "fork hooks of the session must not affect a restore"
        assert {live.run_ok("print(kept)") for live in (itself, forked, restored)} == {"1"}
        forked.restore(checkpoints[forked])
        assert forked.run_ok("print(kept)") == "1"


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.mark.skipif(
    not os.access(FREEZER, os.W_OK),
    reason="this user cannot freeze control groups (version 1)",
)
def test_a_checkpoint_that_dies_during_a_restore_raises() -> None:
    with session(None) as live:
        live.run_ok("kept = 1")
        checkpoint = live.checkpoint()
        assert isinstance(live.executor, SandboxSessionCodeExecutor)
        assert live.executor.place.connection is not None
        (frozen,) = [
            pid
            for pid in descendants(live.executor.place.connection.pid)
            if blocks_all_signals(pid)
        ]
        group = Path(tempfile.mkdtemp(dir=FREEZER))
        try:
            (group / "cgroup.procs").write_text(str(frozen))
            (group / "freezer.state").write_text("FROZEN")

            async def restored() -> None:
                restoring = asyncio.ensure_future(live.executor.restore(checkpoint))
                await asyncio.wait([restoring], timeout=0.3)
                assert not restoring.done()
                os.kill(frozen, signal.SIGKILL)
                (group / "freezer.state").write_text("THAWED")
                await restoring

            with pytest.raises(CheckpointError, match="The checkpoint did not answer or has ended"):
                run_async(restored())
        finally:
            (group / "freezer.state").write_text("THAWED")
            asyncio.run(
                wait_until(
                    lambda: not (group / "cgroup.procs").read_text(),
                    "the checkpoint process has ended",
                )
            )
            group.rmdir()
        assert live.run("print('kept' in dir())").stdout == "False\n"


def blocks_all_signals(pid: int) -> bool:
    """Return True if process `pid` blocks all signals, as checkpoint processes do."""
    blocked = Path(f"/proc/{pid}/status").read_text().partition("SigBlk:")[2].split()[0]
    return bool(int(blocked, 16) & 1 << signal.SIGUSR1 - 1)
