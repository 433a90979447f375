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
from tests.executors.command_line.test_docker_endings import container_state, until

pytestmark = pytest.mark.engine

HEARTBEAT = "while :; do echo x >> beat; sleep 0.02; done"


@pytest.fixture(autouse=True)
def image(monkeypatch: pytest.MonkeyPatch) -> str:
    return docker_engine.use_shared_engine(monkeypatch, "shell")


async def run(executor: DockerCommandLineCodeExecutor, code: str, **options: Any) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, "sh")], **options)


def test_shell_blocks_run_and_share_the_work_folder(image: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image, work_dir=tmp_path) as executor:
            result = await run(executor, "echo out; echo err >&2; echo made > file; exit 3")
            assert (result.exit_code, result.outcome, result.stdout, result.stderr) == (
                3,
                "error",
                "out\n",
                "err\n",
            )
            assert (await run(executor, "cat file; id -u; echo $HOME")).output.split() == [
                "made",
                "0",
                "/home/cell",
            ]
            assert (await run(executor, "kill -TERM $$")).exit_code == 143
            assert (await run(executor, "no-such-program")).exit_code == 127
            assert (await run(executor, 'read line; echo "<$line>"')).output == "<>\n"

    asyncio.run(main())
    assert (tmp_path / "file").read_text() == "made\n"


def test_none_is_no_time_limit(image: str) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image, timeout=None) as executor:
            assert (await run(executor, "echo out")).output == "out\n"

    asyncio.run(main())


def test_leftover_processes_leave_no_zombies(image: str) -> None:
    until_none = (
        "while :; do states=; for file in /proc/[0-9]*/stat; do read -r line < $file && "
        "line=${line##*) } && states=$states${line%% *}; done; "
        "case $states in *Z*) sleep 0.02;; *) break;; esac; done; echo none of $states"
    )

    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            await run(executor, "for number in 1 2 3; do sleep 100 & done")
            assert (await run(executor, until_none)).output.startswith("none of ")

    asyncio.run(main())


def test_python_blocks_raise_a_clear_error(image: str) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image) as executor:
            with pytest.raises(BackendError, match="no python3"):
                await executor.execute_code_blocks([CodeBlock("print(1)", "python")])
            assert (await run(executor, "echo still here")).output == "still here\n"

    asyncio.run(main())


def test_a_time_limit_and_a_cancelled_token_kill_the_process_tree(
    image: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image, timeout=1, work_dir=tmp_path) as executor:
            result = await run(executor, f"trap '' TERM; ({HEARTBEAT}) & echo begun; wait")
            assert (result.exit_code, result.outcome, result.output) == (
                124,
                "timeout",
                "begun\n\nTimeout",
            )
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

    asyncio.run(main())


def test_processes_left_running_by_a_block_are_killed(image: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with DockerCommandLineCodeExecutor(image, work_dir=tmp_path) as executor:
            result = await run(
                executor, f"({HEARTBEAT}) & while [ ! -e beat ]; do sleep 0.01; done; echo over"
            )
            assert (result.exit_code, result.output) == (0, "over\n")
            await assert_dead(tmp_path / "beat")

    asyncio.run(main())


def test_output_is_truncated_and_memory_is_bounded(image: str) -> None:
    async def main() -> None:
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

    asyncio.run(main())


def test_the_container_is_removed_when_its_process_dies(image: str) -> None:
    async def main() -> str:
        executor = DockerCommandLineCodeExecutor(image)
        await executor.start()
        assert executor.container is not None
        name = executor.container
        assert (await run(executor, "echo 1")).output == "1\n"
        await executor.stop()
        return name

    name = asyncio.run(main())
    until(lambda: container_state(name) == "", "the container is still there")
