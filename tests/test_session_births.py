"""Nobody waits for ever for a fork that the session's own code holds up: who asked is told, and the session goes on."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import CheckpointError, SandboxSessionCodeExecutor, SandboxSessionServer
from live import Live, server, wait

# Code may have something done before each fork: here, nothing ever again.
HELD = "import os, time; os.register_at_fork(before=lambda: time.sleep(3600)); kept = 1"


def session(server: SandboxSessionServer) -> Live:
    return Live(SandboxSessionCodeExecutor(server=server, checkpoints=False))


@pytest.mark.timeout(180)
def test_a_fork_that_code_holds_up_ends_in_an_error() -> None:
    with server() as shared, session(shared) as itself, session(shared) as forked, session(shared) as restored:
        marks = {live: live.checkpoint() for live in (itself, forked, restored) if not live.done(HELD)}

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
        assert in_a_restored_one is None, "what code has done at forks is done in a copy that nobody sees"
        assert {live.done("print(kept)") for live in (itself, forked, restored)} == {"1"}
        forked.restore(marks[forked])
        assert forked.done("print(kept)") == "1"
