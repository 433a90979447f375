"""How a block can end, and how the result reports it."""

from __future__ import annotations

import asyncio
import signal

from ...blocks import CodeBlock
from ...cancellation import CancellationToken
from ...limits import MIB, Limits
from ...results import ExecutionCancelled, ExecutionFailed, ExecutionTimeout
from ..liveness import assert_dead, heartbeat, wait_until
from ..registry import check, check_fresh
from ..target import ConformanceTarget


@check
async def success_has_exit_code_zero(target: ConformanceTarget) -> None:
    result = await target.run("print('hi')")
    assert (result.exit_code, result.output, result.outcome, result.limit) == (
        0,
        "hi\n",
        "ok",
        None,
    )
    assert result.check() is result
    assert result.usage.wall_seconds > 0
    assert result.usage.cpu_seconds > 0


@check
async def exit_codes_are_passed_through(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        for argument, expected in (
            ("0", 0),
            ("7", 7),
            ("255", 255),
            ("256", 0),
            ("-1", 255),
            ("None", 0),
        ):
            result = await executor.execute_code_blocks(
                [CodeBlock(f"import sys; sys.exit({argument})", "python")]
            )
            assert result.exit_code == expected, (argument, result)
        result = await executor.execute_code_blocks(
            [CodeBlock("import sys; sys.exit('told you')", "python")]
        )
        assert (result.exit_code, result.stderr, result.outcome) == (1, "told you\n", "error")
        result = await executor.execute_code_blocks(
            [CodeBlock("import os; print('x', flush=True); os._exit(9)", "python")]
        )
        assert (result.exit_code, result.output) == (9, "x\n")
        result = await executor.execute_code_blocks([CodeBlock("exit 42", "sh")])
        assert result.exit_code == 42


@check
async def death_by_signal_is_exit_code_128_plus_signal(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        for number in (
            signal.SIGKILL,
            signal.SIGTERM,
            signal.SIGSEGV,
            signal.SIGABRT,
            signal.SIGHUP,
        ):
            code = "import os\nprint('before', flush=True)\n"
            code += f"os.kill(os.getpid(), {int(number)})\nimport time; time.sleep(60)"
            result = await executor.execute_code_blocks([CodeBlock(code, "python")])
            assert (result.exit_code, result.outcome) == (128 + number, "error"), (number, result)
            assert result.output == "before\n"
        result = await executor.execute_code_blocks(
            [CodeBlock("import ctypes; ctypes.string_at(0)", "python")]
        )
        assert result.exit_code == 128 + signal.SIGSEGV
        assert not [path for path in folder.iterdir() if path.name.startswith("core")], (
            "a core file was left in the work folder"
        )
        result = await executor.execute_code_blocks([CodeBlock("kill -9 $$", "sh")])
        assert result.exit_code == 137


@check_fresh
async def traceback_starts_at_the_users_code(target: ConformanceTarget) -> None:
    result = await target.run("def f():\n    return 1 / 0\n\nf()")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback (most recent call last):\n  File "), result.stderr
    assert "line 4, in <module>" in result.stderr.splitlines()[1], result.stderr
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


@check
async def time_limit_ends_the_block_and_keeps_its_output(target: ConformanceTarget) -> None:
    async with target.executor(timeout=1) as (executor, folder):
        result = await executor.execute_code_blocks(
            [CodeBlock("print('so far', end='', flush=True)\n" + heartbeat("life"), "python")]
        )
        assert (result.exit_code, result.outcome, result.limit) == (124, "timeout", "wall_seconds")
        assert result.output == "so far\nTimeout", result.output
        assert result.stdout == "so far"
        await assert_dead(folder / "life")
        again = await executor.execute_code_blocks([CodeBlock("print('next')", "python")])
        assert again.output == "next\n"
    try:
        result.check()
    except ExecutionTimeout as error:
        assert error.result is result
    else:
        raise AssertionError("check() did not raise")


@check
async def cancelled_token_ends_the_block_and_keeps_its_output(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        token = CancellationToken()
        code = "print('so far', end='', flush=True)\n" + heartbeat("life")
        running = asyncio.ensure_future(
            executor.execute_code_blocks([CodeBlock(code, "python")], token)
        )
        await wait_until((folder / "life").exists, "the block runs")
        token.cancel()
        result = await running
        assert (result.exit_code, result.outcome) == (125, "cancelled")
        assert result.output == "so far\nCancelled: Code execution was cancelled.", result.output
        await assert_dead(folder / "life")
    try:
        result.check()
    except ExecutionCancelled:
        pass
    else:
        raise AssertionError("check() did not raise")


@check
async def token_cancelled_before_the_call_runs_nothing(target: ConformanceTarget) -> None:
    token = CancellationToken()
    token.cancel()
    async with target.executor() as (executor, folder):
        result = await executor.execute_code_blocks(
            [CodeBlock("open('made', 'w')", "python")], token
        )
        assert result.exit_code == 125
        assert not (folder / "made").exists()


@check
async def cancelled_task_ends_the_block_and_raises(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        running = asyncio.ensure_future(
            executor.execute_code_blocks([CodeBlock(heartbeat("life"), "python")])
        )
        await wait_until((folder / "life").exists, "the block runs")
        running.cancel()
        try:
            await running
        except asyncio.CancelledError:
            pass
        else:
            raise AssertionError("CancelledError was swallowed")
        await assert_dead(folder / "life")


@check
async def closing_the_event_stream_ends_the_block(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        stream = executor.execute_stream([CodeBlock(heartbeat("life"), "python")])
        await anext(stream)
        await wait_until((folder / "life").exists, "the block runs")
        await stream.aclose()
        await assert_dead(folder / "life")


@check
async def out_of_memory_is_reported(target: ConformanceTarget) -> None:
    limits = Limits(memory_bytes=256 * MIB)
    gradually = "data = []\nwhile True:\n    data.append(b'x' * (8 << 20))"
    for code in (gradually, "b'x' * (2 << 30)"):
        result = await target.run(f"print('so far', flush=True)\n{code}", limits=limits)
        assert (result.exit_code, result.outcome, result.limit) == (
            137,
            "out_of_memory",
            "memory_bytes",
        ), result
        assert result.output.startswith("so far\n")
        assert "memory" in result.output.splitlines()[-1].lower()
        assert str(256 * MIB) in result.output
    try:
        result.check()
    except ExecutionFailed:
        pass
    else:
        raise AssertionError("check() did not raise")


@check
async def memory_limit_covers_the_process_tree(target: ConformanceTarget) -> None:
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        data = bytearray(os.urandom(1 << 20) * 64)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
    result = await target.run(code, limits=Limits(memory_bytes=256 * MIB))
    assert result.outcome == "out_of_memory", result


@check
async def cpu_time_limit_covers_the_process_tree(target: ConformanceTarget) -> None:
    child = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'while True: pass'])"
    # RLIMIT_CPU would apply to each process separately.
    for code in ("while True: pass", child):
        result = await target.run(
            f"print('busy', flush=True)\n{code}", limits=Limits(cpu_seconds=0.5)
        )
        assert (result.exit_code, result.outcome, result.limit) == (
            124,
            "timeout",
            "cpu_seconds",
        ), result
        assert result.output.startswith("busy\n\nTimeout")


@check
async def file_size_limit_applies(target: ConformanceTarget) -> None:
    limits = Limits(file_bytes=MIB)
    result = await target.run("head -c 3000000 /dev/zero > big", "sh", limits=limits)
    assert result.exit_code != 0
    async with target.executor(limits=limits) as (executor, folder):
        await executor.execute_code_blocks(
            [CodeBlock("open('big', 'wb').write(b'x' * 3000000)", "python")]
        )
        assert (folder / "big").stat().st_size <= MIB


@check
async def written_bytes_limit_is_reported(target: ConformanceTarget) -> None:
    code = """
import os
for number in range(100):
    with open(f"much-{number}", "wb") as file:
        file.write(b"x" * (4 << 20))
        file.flush()
        os.fsync(file.fileno())
"""
    result = await target.run(code, limits=Limits(written_bytes=32 * MIB))
    assert (result.exit_code, result.outcome, result.limit) == (137, "killed", "written_bytes"), (
        result
    )


@check
async def files_limit_is_reported(target: ConformanceTarget) -> None:
    async with target.executor(limits=Limits(files=100)) as (executor, _):
        few = "for number in range(50): open(f'few-{number}', 'w').close()\nprint('made')"
        result = await executor.execute_code_blocks([CodeBlock(few, "python")])
        assert (result.exit_code, result.limit) == (0, None), result
        # Many: what others remove from the same filesystem meanwhile hides as many.
        many = few.replace("few", "many").replace("50)", "10**7)")
        result = await executor.execute_code_blocks([CodeBlock(many, "python")])
        assert (result.exit_code, result.outcome, result.limit) == (137, "killed", "files"), result


@check
async def open_files_limit_applies(target: ConformanceTarget) -> None:
    code = "files = []\ntry:\n    while True: files.append(open('/dev/null'))\n"
    code += "except OSError: print(len(files) < 64)"
    result = await target.run(code, limits=Limits(open_files=64))
    assert result.output == "True\n", result


@check
async def process_limit_stops_a_fork_bomb(target: ConformanceTarget) -> None:
    code = """
import os, time, warnings
warnings.simplefilter("ignore")  # a kernel has threads, and Python warns about forks
made = 0
try:
    while made < 500:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError:
    pass
print(made < 300)  # where the kernel counts by user, it is 64 more than others run
"""
    result = await target.run(code, limits=Limits(processes=64))
    assert result.output == "True\n", result
