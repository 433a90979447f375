"""Code that kills what a session waits for: no call waits for ever, and the session goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cellblock import CheckpointError
from tests.executors.session.live_session import (
    LiveSession,
    forked,
    run_async,
)

pytestmark = pytest.mark.depends_on_user

KILL_CHECKPOINTS = """import os
for pid in range(2, 400):
    if pid != os.getpid():
        try: os.kill(pid, 9)
        except OSError: pass"""
KEEP_KILLING = """import os, subprocess, sys
killer = subprocess.Popen([sys.executable, "-c", '''
import os
while True:
    for pid in range(os.getpid() + 1, 500):
        try: os.kill(pid, 9)
        except OSError: pass'''])"""


def test_a_killed_checkpoint_cannot_be_restored_and_nothing_is_lost(live: LiveSession) -> None:
    live.run_ok("x = 1")
    checkpoint = live.checkpoint()
    live.run_ok("x = 2")
    live.run_ok(KILL_CHECKPOINTS)
    with pytest.raises(CheckpointError, match="the checkpoint is gone"):
        live.restore(checkpoint)
    assert live.run_ok("x") == "2"
    live.restore(live.checkpoint())
    assert live.run_ok("x") == "2"


def test_a_branch_whose_process_is_killed_is_an_error(keeping: LiveSession) -> None:
    keeping.run_ok("x = 1")
    checkpoint = keeping.checkpoint()
    keeping.run_ok(KEEP_KILLING)
    with (
        pytest.raises(CheckpointError, match="could not be forked"),
        forked(keeping, 5, checkpoint),
    ):
        pass


def test_a_session_goes_on_after_its_restore_was_cancelled(live: LiveSession) -> None:
    live.run_ok("x = 1\nfor i in range(3000): open(f'{i}', 'w').write('data')")
    checkpoint = live.checkpoint()
    live.run_ok("x = 2\nimport os\nfor name in os.listdir(): os.remove(name)")

    async def cancel() -> None:
        restore = asyncio.ensure_future(live.executor.restore(checkpoint))
        while not list(Path(live.folder).iterdir()):
            await asyncio.sleep(0.001)
        restore.cancel()
        await asyncio.wait([restore])

    run_async(cancel())
    assert live.run_ok("x") == "1"
