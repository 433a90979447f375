"""Live sessions: kept state, displayed values, and recovery from crashes."""

from __future__ import annotations

from ...blocks import CodeBlock
from ...executors.base import CodeExecutor
from ...results import CodeResult
from ..liveness import wait_until
from ..registry import check_live
from ..target import ConformanceTarget


async def _run(executor: CodeExecutor, code: str) -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(code, "python")])


@check_live
async def variables_are_kept_between_blocks(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        await _run(executor, "import os\nx = 41\nos.environ['LEFT'] = 'set'\ndef f(): return x + 1")
        result = await _run(executor, "print(f(), os.environ['LEFT'])")
        assert (result.exit_code, result.output) == (0, "42 set\n"), result


@check_live
async def failed_block_keeps_earlier_assignments(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        assert (await _run(executor, "x = 1\nx = 2\n1 / 0")).exit_code == 1
        assert (await _run(executor, "print(x)")).output == "2\n"


@check_live
async def last_expression_is_displayed(target: ConformanceTarget) -> None:
    result = await target.run("a = 6\na * 7")
    assert (result.exit_code, result.output) == (0, "42\n"), result


@check_live
async def traceback_has_name_and_line_without_colours(target: ConformanceTarget) -> None:
    result = await target.run("def f():\n    return 1 / 0\n\nf()")
    assert (result.exit_code, result.outcome) == (1, "error")
    assert "ZeroDivisionError: division by zero" in result.output, result.output
    assert "return 1 / 0" in result.output, result.output
    assert "\x1b" not in result.output, result.output


@check_live
async def sessions_are_isolated_from_each_other(target: ConformanceTarget) -> None:
    async with target.executor() as (one, _), target.executor() as (other, _):
        await _run(one, "secret = 1")
        assert (await _run(other, "print('secret' in globals())")).output == "False\n"


@check_live
async def restart_clears_variables(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        await _run(executor, "x = 1")
        await executor.restart()
        assert (await _run(executor, "print('x' in globals())")).output == "False\n"


@check_live
async def variables_survive_a_time_limit(target: ConformanceTarget) -> None:
    async with target.executor(timeout=1) as (executor, _):
        await _run(executor, "x = 1")
        result = await _run(
            executor, "import time\nx = 2\nprint('so far', flush=True)\ntime.sleep(60)"
        )
        assert (result.exit_code, result.output) == (124, "so far\n\nTimeout"), result
        assert (await _run(executor, "print(x)")).output == "2\n"


@check_live
async def session_recovers_from_every_kind_of_crash(target: ConformanceTarget) -> None:
    endings = (
        "import os; os._exit(3)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import ctypes; ctypes.string_at(0)",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: signal.pause()",
        "import signal\nwhile True:\n    try:\n        while True: signal.pause()\n"
        "    except BaseException: pass",
    )
    async with target.executor(timeout=1) as (executor, _):
        for code in endings:
            ended = await _run(executor, code)
            assert ended.exit_code != 0, (code, ended)
            result = await _run(executor, "print('alive')")
            assert (result.exit_code, result.output) == (0, "alive\n"), (code, result)


@check_live
async def input_fails_immediately_with_a_reason(target: ConformanceTarget) -> None:
    result = await target.run("input('name? ')")
    assert result.exit_code == 1, result
    assert "input" in result.output, result


@check_live
async def output_between_blocks_belongs_to_the_next_block(target: ConformanceTarget) -> None:
    code = """
import os, threading, time
def late():
    while not os.path.exists("go"): time.sleep(0.01)
    print("late", flush=True)
    open("said", "w").close()
threading.Thread(target=late, name="speaker", daemon=True).start()
"""
    async with target.executor() as (executor, folder):
        assert "late" not in (await _run(executor, code)).output
        (folder / "go").touch()
        await wait_until((folder / "said").exists, "the thread prints")
        result = await _run(executor, "print('next')")
        assert result.output == "late\nnext\n", result
