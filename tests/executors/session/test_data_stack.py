"""What analysts use in sessions is kept by checkpoints, crashes, stops and branches."""

from __future__ import annotations

import pytest

from cellblock import CancellationToken, CheckpointError, CodeBlock, SandboxSessionServer
from tests.executors.session.data_stack import USES_OF_PACKAGES, USES_OF_PYTHON, Use
from tests.executors.session.live_session import (
    LiveSession,
    open_session,
    run_async,
    use_in_all_copies,
)

_CRASH = "import os; os._exit(1)"
_WAIT = "print('waits', flush=True); import time; time.sleep(1000)"


async def _stop_block(live: LiveSession) -> None:
    """Run a block that waits, and stop it."""
    token = CancellationToken()
    async for event in live.executor.execute_stream([CodeBlock(_WAIT, "python")], token):
        if "waits" in getattr(event, "text", ""):
            token.cancel()


def _check_use(live: LiveSession, use: Use) -> None:
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
        for number in range(2):
            live.run_ok(f"number = {number}")
            live.crash()
            assert live.run_ok("number") == str(number)
    run_async(_stop_block(live))
    if use.kept == "crash":
        live.run_ok(use.check)
    else:
        use_in_all_copies(live, use.check)


@pytest.mark.pythons
@pytest.mark.network
@pytest.mark.slow
@pytest.mark.parametrize("use", USES_OF_PACKAGES, ids=[use.name for use in USES_OF_PACKAGES])
def test_use_of_packages(data_server: SandboxSessionServer, use: Use) -> None:
    with open_session(data_server, timeout=100) as live:
        _check_use(live, use)


@pytest.mark.parametrize("use", USES_OF_PYTHON, ids=[use.name for use in USES_OF_PYTHON])
def test_use_of_python(shared: SandboxSessionServer, use: Use) -> None:
    with open_session(shared, timeout=100) as live:
        _check_use(live, use)
