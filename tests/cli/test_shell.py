"""`cellblock shell` in a sandbox that this process keeps."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import Sandbox
from tests.cli.cli_process import run_command

pytestmark = pytest.mark.usefixtures("sandbox")

TYPED = r"""
cd /tmp; made=5
pwd; echo $made; cat
printf 'a\033[2Jb\r\n'; echo err >&2; touch left
exit
echo never
"""


async def test_a_shell_keeps_its_state_and_leaves_the_sandbox_alive() -> None:
    async with Sandbox(kept=True) as box:
        try:
            ref = box.ref()
            done = await asyncio.to_thread(run_command, "shell", ref, given=TYPED)
            assert done.stdout == "/tmp\n5\na\ufffd[2Jb\n"
            assert (done.stderr, done.returncode) == ("err\n", 0)
            assert await box.files.exists("/tmp/left")
        finally:
            await box.close()
        done = await asyncio.to_thread(run_command, "shell", ref)
        assert (done.returncode, "closed" in done.stderr or "ended" in done.stderr) == (3, True)
    wrong = await asyncio.to_thread(run_command, "shell", "nonsense")
    assert (wrong.returncode, "REF" in wrong.stderr) == (2, True)
