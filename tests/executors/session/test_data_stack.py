"""What analysts use in sessions is kept by checkpoints, crashes, stops and branches."""

from __future__ import annotations

import pytest

from cellblock import CancellationToken, CheckpointError, CodeBlock, SandboxSessionServer
from tests.executors.session.data_stack import USES, Use
from tests.executors.session.live_session import LiveSession, forked, open_session, run_async

pytestmark = [pytest.mark.pythons, pytest.mark.network, pytest.mark.slow]

_CRASH = "import os; os._exit(1)"
_WAIT = "print('waits', flush=True); import time; time.sleep(1000)"


async def _stop_block(live: LiveSession) -> None:
    """Run a block that waits, and stop it."""
    token = CancellationToken()
    async for event in live.executor.execute_stream([CodeBlock(_WAIT, "python")], token):
        if "waits" in getattr(event, "text", ""):
            token.cancel()


@pytest.mark.parametrize("use", USES, ids=[use.name for use in USES])
def test_use(data_server: SandboxSessionServer, use: Use) -> None:
    with open_session(data_server, timeout=100) as live:
        live.run_ok("number = 0")
        live.run_ok(use.setup)
        if use.kept == "lost":
            with pytest.raises(CheckpointError, match="cannot be copied because it has"):
                live.checkpoint()
            ended = live.run(_CRASH)
            assert not ended.session_restored
            assert "could not be saved: " in ended.notice
            assert live.run_ok("number") == "0"
            return
        if use.kept == "crash":
            # joblib ends its children, and starts one again, at any time after the block.
            with pytest.raises(CheckpointError, match="a named semaphore|the child process"):
                live.checkpoint()
        checkpoint = live.checkpoint() if use.kept != "crash" else None
        for number in range(2):
            live.run_ok(f"number = {number}")
            ended = live.run(_CRASH)
            assert (ended.session_restored, ended.lost_blocks) == (True, 0), ended.notice
            assert live.run_ok("number") == str(number)
        run_async(_stop_block(live))
        assert live.run_ok("number") == "1"
        if checkpoint is None:
            live.run_ok(use.check)
            return
        with forked(live) as (branch,):
            branch.run_ok(use.check)
        live.run_ok(use.check)
        live.restore(checkpoint)
        assert live.run_ok("number") == "0"
        live.run_ok(use.check)
