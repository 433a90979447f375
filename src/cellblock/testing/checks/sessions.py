"""Live sessions: what stays from block to block, what shows, and that no block can take a session down."""

from __future__ import annotations

import asyncio
import time

from ...blocks import CodeBlock
from ...executors.base import CodeExecutor
from ...results import CodeResult
from ..subject import Subject, check_live

_PATIENCE = (
    20.0  # seconds until the answer after a block that ended badly; far more than a session needs
)


async def _run(executor: CodeExecutor, code: str) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, "python")])


@check_live
async def state_stays_from_block_to_block(subject: Subject) -> None:
    async with subject.executor() as (executor, _):
        await _run(executor, "import os\nx = 41\nos.environ['LEFT'] = 'set'\ndef f(): return x + 1")
        result = await _run(executor, "print(f(), os.environ['LEFT'])")
        assert (result.exit_code, result.output) == (0, "42 set\n"), result


@check_live
async def a_failed_block_keeps_what_it_did_before(subject: Subject) -> None:
    async with subject.executor() as (executor, _):
        assert (await _run(executor, "x = 1\nx = 2\n1 / 0")).exit_code == 1
        assert (await _run(executor, "print(x)")).output == "2\n"


@check_live
async def the_last_expression_is_shown(subject: Subject) -> None:
    result = await subject.run("a = 6\na * 7")
    assert (result.exit_code, result.output) == (0, "42\n"), result


@check_live
async def an_exception_shows_its_name_and_line_without_colours(subject: Subject) -> None:
    result = await subject.run("def f():\n    return 1 / 0\n\nf()")
    assert (result.exit_code, result.outcome) == (1, "error")
    assert "ZeroDivisionError: division by zero" in result.output, result.output
    assert "return 1 / 0" in result.output, result.output
    assert "\x1b" not in result.output, result.output


@check_live
async def sessions_do_not_see_each_other(subject: Subject) -> None:
    async with subject.executor() as (one, _), subject.executor() as (other, _):
        await _run(one, "secret = 1")
        assert (await _run(other, "print('secret' in globals())")).output == "False\n"


@check_live
async def restart_forgets_the_state(subject: Subject) -> None:
    async with subject.executor() as (executor, _):
        await _run(executor, "x = 1")
        await executor.restart()
        assert (await _run(executor, "print('x' in globals())")).output == "False\n"


@check_live
async def an_interrupted_session_keeps_its_variables(subject: Subject) -> None:
    async with subject.executor(timeout=1) as (executor, _):
        await _run(executor, "x = 1")
        result = await _run(executor, "x = 2\nprint('so far', flush=True)\nwhile True: pass")
        assert (result.exit_code, result.output) == (124, "so far\n\nTimeout"), result
        assert (await _run(executor, "print(x)")).output == "2\n"


@check_live
async def a_session_answers_whatever_the_block_before_did(subject: Subject) -> None:
    endings = (
        "import os; os._exit(3)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import ctypes; ctypes.string_at(0)",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    )
    async with subject.executor(timeout=2) as (executor, _):
        for code in endings:
            ended = await _run(executor, code)
            assert ended.exit_code != 0, (code, ended)
            began = time.monotonic()
            result = await _run(executor, "print('alive')")
            assert (result.exit_code, result.output) == (0, "alive\n"), (code, result)
            assert time.monotonic() - began < _PATIENCE, code


@check_live
async def input_fails_at_once_and_says_why(subject: Subject) -> None:
    result = await subject.run("input('name? ')")
    assert result.exit_code == 1, result
    assert "input" in result.output, result


@check_live
async def output_between_blocks_comes_with_the_next(subject: Subject) -> None:
    code = "import threading\nthreading.Timer(0.3, lambda: print('late', flush=True)).start()"
    async with subject.executor() as (executor, _):
        assert (await _run(executor, code)).output == ""
        await asyncio.sleep(0.8)
        result = await _run(executor, "print('next')")
        assert result.output == "late\nnext\n", result
