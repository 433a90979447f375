"""An image without Python: shell blocks run, and Python blocks raise a clear error."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    CancellationToken,
    CodeBlock,
    CodeResult,
    DockerCommandLineCodeExecutor,
    Limits,
)
from cellblock.testing.liveness import assert_dead, wait_until
from tests.containers import docker_engine

pytestmark = [pytest.mark.engine, pytest.mark.slow]

HEARTBEAT = "while :; do echo x >> beat; sleep 0.02; done"


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch) -> str:
    return docker_engine.use_shared_engine(monkeypatch, "shell")


async def run(executor: DockerCommandLineCodeExecutor, code: str, **options: Any) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, "sh")], **options)


async def test_shell_blocks_run_and_python_blocks_raise_a_clear_error(
    image: str, tmp_path: Path
) -> None:
    async with DockerCommandLineCodeExecutor(image, timeout=None, work_dir=tmp_path) as executor:
        result = await run(executor, "echo out; echo err >&2; echo made > file; exit 3")
        assert (result.exit_code, result.outcome) == (3, "error")
        assert (result.stdout, result.stderr) == ("out\n", "err\n")
        with pytest.raises(BackendError, match="no python3"):
            await executor.execute_code_blocks([CodeBlock("print(1)", "python")])
        shown = (await run(executor, "cat file; id -u; echo $HOME")).output
        assert shown == "made\n0\n/home/cell\n"
        assert (await run(executor, "kill -TERM $$")).exit_code == 143
        assert (await run(executor, "no-such-program")).exit_code == 127
        assert (await run(executor, 'read line; echo "<$line>"')).output == "<>\n"
    assert (tmp_path / "file").read_text() == "made\n"


async def test_a_time_limit_and_a_cancelled_token_kill_the_process_tree(
    image: str, tmp_path: Path
) -> None:
    async with DockerCommandLineCodeExecutor(image, timeout=1, work_dir=tmp_path) as executor:
        result = await run(executor, f"trap '' TERM; ({HEARTBEAT}) & echo begun; wait")
        assert (result.exit_code, result.outcome) == (124, "timeout")
        assert result.output == "begun\n\nTimeout"
        await assert_dead(tmp_path / "beat")
        (tmp_path / "beat").unlink()
        token = CancellationToken()
        running = asyncio.create_task(
            run(executor, f"echo begun; {HEARTBEAT}", cancellation_token=token)
        )
        await wait_until((tmp_path / "beat").exists, "the block runs")
        token.cancel()
        result = await running
        assert (result.exit_code, result.outcome) == (125, "cancelled")
        assert result.output.startswith("begun\n")
        await assert_dead(tmp_path / "beat")


async def test_processes_left_by_a_block_are_killed_and_leave_no_zombies(
    image: str, tmp_path: Path
) -> None:
    until_no_zombies = (
        "while :; do states=; for file in /proc/[0-9]*/stat; do read -r line < $file && "
        "line=${line##*) } && states=$states${line%% *}; done; "
        "case $states in *Z*) sleep 0.02;; *) break;; esac; done; echo none of $states"
    )
    leave = f"({HEARTBEAT}) & sleep 100 & while [ ! -e beat ]; do sleep 0.01; done; echo over"
    async with DockerCommandLineCodeExecutor(image, work_dir=tmp_path) as executor:
        result = await run(executor, leave)
        assert (result.exit_code, result.output) == (0, "over\n")
        await assert_dead(tmp_path / "beat")
        assert (await run(executor, until_no_zombies)).output.startswith("none of ")


async def test_output_is_truncated_and_memory_is_bounded(image: str) -> None:
    limits = Limits(memory_bytes=50 << 20, output_bytes=1000)
    async with DockerCommandLineCodeExecutor(image, limits=limits) as executor:
        result = await run(
            executor, "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done"
        )
        assert result.output.startswith("line 0\n")
        assert result.output.endswith("line 1999\n")
        assert len(result.output) < 1200
        result = await run(executor, "x=0123456789; while :; do x=$x$x; done")
        assert (result.exit_code, result.outcome) == (137, "out_of_memory"), result.output
