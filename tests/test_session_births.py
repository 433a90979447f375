"""Nobody waits for ever for a fork that the session's own code holds up: who asked is told, and the session goes on."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import CheckpointError, SandboxSessionCodeExecutor, SandboxSessionServer
from cellblock.errors import SessionError
from live import Live, server, wait

# Code may have something done before each fork, in a copy of its session too: here, nothing ever again.
IN_ITSELF = "import os, time; is_held = False; os.register_at_fork(before=lambda: is_held and time.sleep(3600)); kept = 1"
IN_COPIES = f"{IN_ITSELF}; own = os.getpid(); os.register_at_fork(before=lambda: own != os.getpid() and time.sleep(3600))"


def session(server: SandboxSessionServer) -> Live:
    return Live(SandboxSessionCodeExecutor(server=server, checkpoints=False))


@pytest.mark.timeout(180)
def test_a_fork_that_code_holds_up_ends_in_an_error() -> None:
    with server() as shared, session(shared) as itself, session(shared) as forked, session(shared) as restored:
        itself.done(IN_ITSELF)
        itself.done("is_held = True")
        marks = {live: live.checkpoint() for live in (forked, restored) if not live.done(IN_COPIES)}

        async def all_three() -> tuple[object, ...]:
            return await asyncio.gather(
                itself.executor.fork(),
                forked.executor.fork(mark=marks[forked]),
                restored.executor.restore(marks[restored]),
                return_exceptions=True,
            )

        in_itself, in_a_copy, in_a_restored_one = wait(all_three())
        assert isinstance(in_itself, SessionError), in_itself
        assert "wall_seconds" in str(in_itself)
        assert isinstance(in_a_copy, CheckpointError), in_a_copy
        assert "did not answer for 30 s" in str(in_a_copy)
        assert in_a_restored_one is None, "what code has done at forks is done in a copy that nobody sees"
        assert {live.done("print(kept)") for live in (forked, restored)} == {"1"}
        assert itself.run("print('kept' in dir())").stdout == "False\n"
        with pytest.raises(CheckpointError, match="gone"):
            wait(forked.executor.fork(mark=marks[forked]))
