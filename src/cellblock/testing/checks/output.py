"""Output is complete and in order, or truncated with a marker."""

from __future__ import annotations

import gc
import resource

from ...blocks import CodeBlock
from ...events import Output
from ...limits import Limits
from ...results import fold
from ..registry import check
from ..target import ConformanceTarget


@check
async def output_keeps_the_order_of_stdout_and_stderr(target: ConformanceTarget) -> None:
    code = """
import sys
for number in range(200):
    print(number, file=sys.stdout if number % 2 else sys.stderr, flush=True)
"""
    result = await target.run(code)
    assert result.output == "".join(f"{number}\n" for number in range(200)), result.output
    assert result.stdout == "".join(f"{number}\n" for number in range(1, 200, 2))
    assert result.stderr == "".join(f"{number}\n" for number in range(0, 200, 2))


@check
async def output_order_is_kept_for_shell_programs(target: ConformanceTarget) -> None:
    result = await target.run("echo a; echo b >&2; echo c; ls /nowhere-at-all; echo d", "sh")
    lines = result.output.splitlines()
    assert lines[:3] == ["a", "b", "c"], result.output
    assert lines[-1] == "d", result.output
    assert "nowhere-at-all" in lines[3], result.output


@check
async def output_order_is_kept_after_much_output_on_one_stream(target: ConformanceTarget) -> None:
    code = """
import os
for number in range(2000): os.write(1, b"o")
for number in range(50): os.write(2, b"E"); os.write(1, b"O")
"""
    result = await target.run(code)
    assert result.output.startswith("o" * 2000), result.output[:100]
    # The first switch between the streams may be out of order; later ones must be exact.
    assert result.output.endswith("EO" * 40), result.output[-120:]


@check
async def output_without_newline_is_kept(target: ConformanceTarget) -> None:
    result = await target.run("print('no newline', end='')")
    assert result.output == "no newline"


@check
async def unflushed_output_is_kept(target: ConformanceTarget) -> None:
    result = await target.run("import sys\nn = sys.stdout.write('a'); n = sys.stderr.write('b')")
    assert result.stdout == "a"
    assert result.stderr == "b"


@check
async def large_output_is_truncated_and_marked(target: ConformanceTarget) -> None:
    code = """
import os
block = b"x" * 999_999 + b"\\n"
os.write(1, b"first\\n")
for _ in range(250):
    left = block
    while left:
        left = left[os.write(1, left):]
n = os.write(1, b"last\\n")
"""
    limit = 1024 * 1024
    async with target.executor(limits=Limits(output_bytes=limit), timeout=120) as (executor, _):
        await executor.execute_code_blocks([CodeBlock("print(1)", "python")])
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    total = 6 + 250 * 1_000_000 + 5
    assert result.exit_code == 0, result.output[-500:]
    assert result.output.startswith("first\n")
    assert result.output.endswith("last\n")
    assert f"{total - limit} bytes" in result.output, "the marker has no number of bytes"
    assert len(result.output) < limit + 200
    assert grown < 64 * 1024 * 1024, f"the memory of the caller grew by {grown} bytes"


@check
async def save_output_saves_the_whole_output(target: ConformanceTarget) -> None:
    async with target.executor(limits=Limits(output_bytes=1000), save_output=True) as (
        executor,
        folder,
    ):
        result = await executor.execute_code_blocks([CodeBlock("print('y' * 100_000)", "python")])
        saved = [name for name in result.files if name.startswith("output_")]
        assert len(saved) == 1, result.files
        assert (folder / saved[0]).read_text() == "y" * 100_000 + "\n"
        assert len(result.output) < 1200


@check
async def invalid_bytes_in_output_are_replaced(target: ConformanceTarget) -> None:
    code = "import os\nos.write(1, b'a\\xff\\xfe\\xc3(\\x00\\x1b[31mb\\xed\\xa0\\x80')\n"
    code += "os.write(2, b'\\xf0\\x9f')"
    result = await target.run(code)
    assert result.exit_code == 0
    assert result.output.startswith("a\ufffd"), ascii(result.output)
    assert "\x00" not in result.output, "the output contains NUL"
    assert "\x1b" not in result.output, "the output contains the escape character"
    result.output.encode()  # no lone surrogates


@check
async def character_split_across_writes_is_decoded(target: ConformanceTarget) -> None:
    code = "import os, time\nfor byte in 'grüße €'.encode():\n"
    code += "    os.write(1, bytes([byte]))\n    time.sleep(0.002)"
    result = await target.run(code)
    assert result.output == "grüße €", ascii(result.output)


@check
async def lone_surrogates_in_code_are_accepted(target: ConformanceTarget) -> None:
    result = await target.run("# \ud800\nprint('ok')")
    assert result.output == "ok\n"


@check
async def fold_of_events_equals_the_result(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        blocks = [CodeBlock("print('one')", "python"), CodeBlock("echo two; exit 3", "sh")]
        events = [event async for event in executor.execute_stream(blocks)]
        result = fold(events)
        again = await executor.execute_code_blocks(blocks)
    assert (result.exit_code, result.output, result.outcome) == (3, "one\ntwo\n", "error")
    assert (again.exit_code, again.output, again.outcome) == (3, "one\ntwo\n", "error")


@check
async def output_is_streamed_while_the_block_runs(target: ConformanceTarget) -> None:
    code = "import time\nprint('early', flush=True)\ntime.sleep(600)"
    seen = ""
    async with target.executor() as (executor, _):
        stream = executor.execute_stream([CodeBlock(code, "python")])
        async for event in stream:
            if isinstance(event, Output):
                seen += event.text
            if "early" in seen:
                break
        await stream.aclose()
    assert "early" in seen
