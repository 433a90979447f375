"""Concurrent calls: on one executor and on several, from tasks, event loops and threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from ...blocks import CodeBlock
from ...executors.base import CodeExecutor
from ...results import CodeResult
from ..registry import check, check_fresh
from ..target import ConformanceTarget


async def _echo(executor: CodeExecutor, number: int) -> CodeResult:
    # The blocks differ only in the number, so mixed-up files or streams would change the output.
    code = f"import time\nprint({number})\ntime.sleep(0.01)\nprint({number})"
    return await executor.execute_code_blocks([CodeBlock(code, "python")])


def _check_results(results: list[CodeResult]) -> None:
    for number, result in enumerate(results):
        assert (result.exit_code, result.output) == (0, f"{number}\n{number}\n"), (number, result)


@check
async def concurrent_calls_get_their_own_results(target: ConformanceTarget) -> None:
    async with target.executor(timeout=60) as (executor, _):
        _check_results(await asyncio.gather(*(_echo(executor, number) for number in range(48))))


@check_fresh
async def concurrent_equal_blocks_have_separate_files(target: ConformanceTarget) -> None:
    async with target.executor(timeout=60) as (executor, _):
        block = CodeBlock("import os\nprint(os.path.exists(__file__))", "python")
        results = await asyncio.gather(*(executor.execute_code_blocks([block]) for _ in range(24)))
        assert [result.output for result in results] == ["True\n"] * 24


@check
async def concurrent_executors_get_their_own_results(target: ConformanceTarget) -> None:
    async with contextlib.AsyncExitStack() as stack:
        started = [await stack.enter_async_context(target.executor(timeout=60)) for _ in range(6)]
        calls = (_echo(started[number % 6][0], number) for number in range(24))
        _check_results(await asyncio.gather(*calls))


@check
async def failed_call_does_not_affect_concurrent_calls(target: ConformanceTarget) -> None:
    async with target.executor(timeout=2) as (executor, _):
        forever = executor.execute_code_blocks([CodeBlock("import time; time.sleep(60)", "python")])
        killed = executor.execute_code_blocks(
            [CodeBlock("import os; os.kill(os.getpid(), 9)", "python")]
        )
        others = asyncio.gather(*(_echo(executor, number) for number in range(8)))
        ended = await asyncio.gather(forever, killed, others)
        assert (ended[0].exit_code, ended[1].exit_code) == (124, 137)
        _check_results(ended[2])


@check
async def several_event_loops_can_share_an_executor(target: ConformanceTarget) -> None:
    async with target.executor(timeout=60) as (executor, _):
        results: dict[int, CodeResult] = {}

        def run_in_thread(number: int) -> None:
            results[number] = asyncio.run(_echo(executor, number))

        threads = [threading.Thread(target=run_in_thread, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        own = await asyncio.gather(*(_echo(executor, number) for number in range(4)))
        for thread in threads:
            await asyncio.to_thread(thread.join)
        _check_results(own)
        _check_results([results[number] for number in range(6)])


@check
async def concurrent_start_and_stop_are_safe(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        await asyncio.gather(*(executor.start() for _ in range(5)))
        await asyncio.gather(*(executor.stop() for _ in range(5)))
        results = await asyncio.gather(*(_echo(executor, number) for number in range(4)))
        _check_results(list(results))
