"""Timeouts, cancellation, and kernel deaths: how blocks end, and whether the kernel survives."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from cellblock import (
    CancellationToken,
    CodeBlock,
    ExecutorStopped,
    JupyterCodeExecutor,
    Limits,
    sync,
)
from cellblock.limits import MIB
from cellblock.testing.liveness import assert_dead, heartbeat, wait_until
from tests.executors.jupyter.kernels import run, run_and_end
from tests.suite.tiers import exhaustive

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("kernel_specs")]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return tmp_path / "work"


@pytest.fixture(scope="module")
def python(
    tmp_path_factory: pytest.TempPathFactory, kernel_specs: None
) -> Iterator[sync.JupyterCodeExecutor]:
    with sync.JupyterCodeExecutor(
        work_dir=tmp_path_factory.mktemp("shared"), timeout=30
    ) as executor:
        yield executor


@pytest.mark.slow
def test_code_that_ignores_interrupts_is_killed_with_its_kernel(work: Path) -> None:
    beat = textwrap.indent(heartbeat("stubborn"), "        ")
    code = (
        "print('so far', flush=True)\n"
        f"while True:\n    try:\n{beat}\n    except BaseException: pass"
    )
    with sync.JupyterCodeExecutor(timeout=1, work_dir=work) as executor:
        run(executor, "gone = 1")
        result = run(executor, code)
        asyncio.run(assert_dead(work / "stubborn"))
        assert (result.exit_code, result.outcome, result.limit) == (124, "timeout", "wall_seconds")
        assert result.output.startswith(
            "so far\n\nTimeout\nThe code did not end when it was interrupted. The kernel was"
        )
        assert "variables are gone" in result.notice
        assert "NameError" in run(executor, "gone").stderr


@pytest.mark.slow
async def test_cancelling_the_token_interrupts_the_block_and_waiting_ones(work: Path) -> None:
    async with JupyterCodeExecutor(work_dir=work) as executor:
        await executor.execute_code_blocks([CodeBlock("kept = 1", "python")])
        token = CancellationToken()
        code = "print('so far', end='')\n" + heartbeat("cancelled")
        running = asyncio.ensure_future(
            executor.execute_code_blocks([CodeBlock(code, "python")], token)
        )
        waiting = asyncio.ensure_future(
            executor.execute_code_blocks([CodeBlock("1", "python")], token)
        )
        await wait_until((work / "cancelled").exists, "the block runs")
        token.cancel()
        result, other = await asyncio.gather(running, waiting)
        assert (result.exit_code, result.outcome) == (125, "cancelled")
        assert result.output == "so far\nCancelled: Code execution was cancelled."
        assert other.exit_code == 125
        assert (await executor.execute_code_blocks([CodeBlock("kept", "python")])).output == "1\n"


async def test_cancelling_the_task_stops_the_code_and_keeps_the_kernel(work: Path) -> None:
    async with JupyterCodeExecutor(work_dir=work) as executor:
        await executor.execute_code_blocks([CodeBlock("kept = 1", "python")])
        running = asyncio.ensure_future(
            executor.execute_code_blocks([CodeBlock(heartbeat("task"), "python")])
        )
        await wait_until((work / "task").exists, "the block runs")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await assert_dead(work / "task")
        assert (await executor.execute_code_blocks([CodeBlock("kept", "python")])).output == "1\n"


@pytest.mark.parametrize(
    ("code", "exit_code", "how"),
    exhaustive(
        [
            ("os._exit(9)", 9, "exit code 9"),
            ("os._exit(0)", 137, "exit code 0"),
            ("os.kill(os.getpid(), 9)", 137, "signal 9"),
            ("import ctypes; ctypes.string_at(0)", 139, "signal 11"),
        ]
    ),
)
def test_a_dead_kernel_is_reported_and_replaced(
    python: sync.JupyterCodeExecutor, code: str, exit_code: int, how: str
) -> None:
    folder = Path(run(python, "import os; print(os.getcwd())").output.strip())
    result = run_and_end(python, code, folder)
    assert (result.exit_code, result.outcome) == (exit_code, "killed")
    assert result.output == (
        f"x\n\nKilled: the kernel died ({how}).\nThe kernel was restarted: its variables are gone."
    )
    assert run(python, "1").output == "1\n"


@pytest.mark.slow
def test_a_kernel_that_dies_between_blocks_is_replaced(
    python: sync.JupyterCodeExecutor, tmp_path: Path
) -> None:
    end = (
        "import os, threading, time\ndef end():\n"
        f"    while not os.path.exists({str(tmp_path / 'end')!r}): time.sleep(0.01)\n"
        "    os._exit(1)\nthreading.Thread(target=end).start()"
    )
    run(python, end)
    kernel: Any = cast(Any, python)._executor._kernel
    (tmp_path / "end").touch()
    asyncio.run(wait_until(kernel._manager.provisioner.died.done, "the kernel has ended"))
    result = run(python, "1")
    assert (result.exit_code, result.stdout) == (0, "1\n")
    assert "variables are gone" in result.notice


def test_out_of_memory_kills_the_kernel_and_names_the_limit(work: Path) -> None:
    limits = Limits(memory_bytes=300 * MIB)
    with sync.JupyterCodeExecutor(work_dir=work, limits=limits) as executor:
        result = run(executor, "held = []\nwhile True: held.append(b'x' * (8 << 20))")
        assert (result.exit_code, result.outcome, result.limit) == (
            137,
            "out_of_memory",
            "memory_bytes",
        )
        assert str(300 * MIB) in result.output
        assert run(executor, "1").output == "1\n"


def test_stopping_kills_all_descendants_of_the_kernel(work: Path) -> None:
    daemon = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', CODE], start_new_session=True)\nNone"
    )
    with sync.JupyterCodeExecutor(work_dir=work) as executor:
        run(executor, daemon.replace("CODE", repr(heartbeat("daemon"))))
        asyncio.run(wait_until((work / "daemon").exists, "the daemon runs"))
        shown = executor.output_dir
        assert shown.exists()
    asyncio.run(assert_dead(work / "daemon"))
    assert not shown.exists()


async def test_stopping_during_a_block_raises_backend_lost(work: Path) -> None:
    executor = JupyterCodeExecutor(work_dir=work)
    running = asyncio.ensure_future(
        executor.execute_code_blocks([CodeBlock(heartbeat("stopped"), "python")])
    )
    await wait_until((work / "stopped").exists, "the block runs", 30)
    await executor.stop()
    with pytest.raises(ExecutorStopped, match="stopped"):
        await running
    await assert_dead(work / "stopped")
