"""Many at once: calls on one executor and on many, tasks, event loops and threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from ...blocks import CodeBlock
from ...executors.base import CodeExecutor
from ...results import CodeResult
from ..subject import Subject, check, check_fresh


async def _echo(executor: CodeExecutor, number: int) -> CodeResult:
    # The same text but for the number, printed twice: names by content or crossed streams would show.
    code = f"import time\nprint({number})\ntime.sleep(0.01)\nprint({number})"
    return await executor.execute_code_blocks([CodeBlock(code, "python")])


def _check(results: list[CodeResult]) -> None:
    for number, result in enumerate(results):
        assert (result.exit_code, result.output) == (0, f"{number}\n{number}\n"), (number, result)


@check
async def calls_on_one_executor_get_their_own_results(subject: Subject) -> None:
    async with subject.executor(timeout=60) as (executor, _):
        _check(await asyncio.gather(*(_echo(executor, number) for number in range(48))))


@check_fresh
async def equal_blocks_at_once_do_not_share_a_file(subject: Subject) -> None:
    async with subject.executor(timeout=60) as (executor, _):
        block = CodeBlock("import os\nprint(os.path.exists(__file__))", "python")
        results = await asyncio.gather(*(executor.execute_code_blocks([block]) for _ in range(24)))
        assert [result.output for result in results] == ["True\n"] * 24


@check
async def calls_on_many_executors_get_their_own_results(subject: Subject) -> None:
    async with contextlib.AsyncExitStack() as stack:
        made = [await stack.enter_async_context(subject.executor(timeout=60)) for _ in range(6)]
        calls = (_echo(made[number % 6][0], number) for number in range(24))
        _check(await asyncio.gather(*calls))


@check
async def one_call_that_ends_badly_leaves_the_others_alone(subject: Subject) -> None:
    async with subject.executor(timeout=3) as (executor, _):
        forever = executor.execute_code_blocks([CodeBlock("while True: pass", "python")])
        killed = executor.execute_code_blocks(
            [CodeBlock("import os; os.kill(os.getpid(), 9)", "python")]
        )
        others = asyncio.gather(*(_echo(executor, number) for number in range(8)))
        ended = await asyncio.gather(forever, killed, others)
        assert (ended[0].exit_code, ended[1].exit_code) == (124, 137)
        _check(ended[2])


@check
async def two_event_loops_can_use_one_executor(subject: Subject) -> None:
    async with subject.executor(timeout=60) as (executor, _):
        results: dict[int, CodeResult] = {}

        def use(number: int) -> None:
            results[number] = asyncio.run(_echo(executor, number))

        threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        mine = await asyncio.gather(*(_echo(executor, number) for number in range(4)))
        for thread in threads:
            await asyncio.to_thread(thread.join)
        _check(mine)
        _check([results[number] for number in range(6)])


@check
async def starting_and_stopping_at_once_is_safe(subject: Subject) -> None:
    async with subject.executor() as (executor, _):
        await asyncio.gather(*(executor.start() for _ in range(5)))
        await asyncio.gather(*(executor.stop() for _ in range(5)))
        results = await asyncio.gather(*(_echo(executor, number) for number in range(4)))
        _check(list(results))
