"""Valid and invalid requests: languages, file names, arguments, input."""

from __future__ import annotations

from collections.abc import Awaitable

from ...blocks import CodeBlock
from ..registry import check, check_fresh
from ..target import ConformanceTarget


@check
async def each_block_has_its_own_result(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        blocks = [
            CodeBlock("open('made.txt', 'w').write('x')\nprint('one')", "python"),
            CodeBlock("echo two >&2", "sh"),
            CodeBlock("print('three'); raise SystemExit(4)", "python"),
            CodeBlock("open('never', 'w')", "python"),
        ]
        result = await executor.execute_code_blocks(blocks)
        assert (result.exit_code, result.output) == (4, "one\ntwo\nthree\n"), result
        assert [block.exit_code for block in result.blocks] == [0, 0, 4]
        assert [block.output for block in result.blocks] == ["one\n", "two\n", "three\n"]
        assert [block.stderr for block in result.blocks] == ["", "two\n", ""]
        assert [block.outcome for block in result.blocks] == ["ok", "ok", "error"]
        assert result.blocks[0].files == ["made.txt"], result.blocks[0].files
        assert result.files == ["made.txt"]
        assert not (folder / "never").exists(), "a block ran after one that failed"


@check
async def unknown_language_fails_without_running(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        before = {path.name for path in folder.iterdir()}
        blocks = [
            CodeBlock("print('kept')", "python"),
            CodeBlock("+++", "brainfuck"),
            CodeBlock("print(1)", "python"),
        ]
        result = await executor.execute_code_blocks(blocks)
        assert (result.exit_code, result.outcome) == (1, "error")
        assert result.blocks[1].output == "unknown language brainfuck", result.blocks[1]
        assert result.output.startswith("kept\n"), "the output of earlier blocks is lost"
        assert len(result.blocks) == 2
        # The executor may keep the file of the first block.
        new = [path.read_text() for path in folder.iterdir() if path.name not in before]
        assert [text for text in new if "kept" not in text] == [], "a file was written"


@check
async def filename_outside_the_work_folder_is_refused(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        for name in ("../outside.py", "/outside-cellblock.py", "a/../../outside.py", "", "."):
            code = f"# filename: {name}\nprint('ran')"
            blocks = [CodeBlock("print('kept')", "python"), CodeBlock(code, "python")]
            result = await executor.execute_code_blocks(blocks)
            if not name:  # an ordinary comment
                assert result.exit_code == 0
                continue
            assert result.exit_code == 1, (name, result)
            assert result.output == "kept\nFilename is not in the workspace", (name, result)
        assert not (folder.parent / "outside.py").exists()


@check
async def symlink_out_of_the_work_folder_is_not_followed(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        outside = folder.parent / f"{folder.name}-outside"
        outside.mkdir()
        try:
            code = f"import os\nos.symlink({str(outside)!r}, 'link')\n"
            code += f"os.symlink({str(outside / 'file.py')!r}, 'file.py')"
            await executor.execute_code_blocks([CodeBlock(code, "python")])
            for name in ("link/in.py", "file.py"):
                result = await executor.execute_code_blocks(
                    [CodeBlock(f"# filename: {name}\nprint(1)", "python")]
                )
                assert result.output in ("Filename is not in the workspace", "1\n"), (name, result)
                assert not list(outside.iterdir()), f"{name}: written through a symlink"
        finally:
            for path in outside.iterdir():
                path.unlink()
            outside.rmdir()


@check
async def shell_block_runs_with_the_program_that_it_names(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        array = "#!/bin/bash\na=(1 2)\n[[ ${#a[@]} == 2 ]] && echo two"
        first_failure = "#!/bin/sh -e\nfalse\necho not reached"
        python = "#!/usr/bin/env python3\nprint(2 ** 70)"
        missing = "#!/usr/bin/missing-program\necho not reached"
        for code, exit_code, output in (
            (array, 0, "two\n"),
            (first_failure, 1, ""),
            (python, 0, f"{2**70}\n"),
        ):
            result = await executor.execute_code_blocks([CodeBlock(code, "sh")])
            assert (result.exit_code, result.output) == (exit_code, output), (code, result)
        result = await executor.execute_code_blocks([CodeBlock(missing, "sh")])
        assert result.exit_code == 127, result
        assert "missing-program" in result.output, result


@check
async def carriage_returns_do_not_reach_programs(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        shell = "if true; then\r\n  echo yes\r\nfi\r\nexit 0\r\n"
        python = '\ufefftext = """a\r\nb"""\r\nprint(repr(text))\r\n'
        for code, language, output in (
            (shell, "sh", "yes\n"),
            (f"#!/bin/bash\r\n{shell}", "bash", "yes\n"),
            (python, "python", "'a\\nb'\n"),
        ):
            result = await executor.execute_code_blocks([CodeBlock(code, language)])
            assert (result.exit_code, result.output) == (0, output), (code, result)


@check
async def coding_cookie_of_a_block_is_ignored(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        for encoding in ("latin-1", "no-such-encoding"):
            code = f"# -*- coding: {encoding} -*-\nprint(len('\u20ac\u00e9'))"
            for block in (code, f"# filename: cookie.py\n{code}"):
                result = await executor.execute_code_blocks([CodeBlock(block, "python")])
                assert (result.exit_code, result.output) == (0, "2\n"), (block, result)
            load = "import cookie; del __import__('sys').modules['cookie']"
            result = await executor.execute_code_blocks([CodeBlock(load, "python")])
            assert (result.exit_code, result.output) == (0, "2\n"), (encoding, result)


@check
async def named_file_is_written_run_and_kept(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        code = "# filename: deep/er/script.py\nprint(__file__.endswith('deep/er/script.py'))"
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert (result.exit_code, result.output) == (0, "True\n"), result
        assert (folder / "deep/er/script.py").read_text() == code
        assert getattr(result, "code_file", "").endswith("deep/er/script.py")


@check
async def blocks_share_files(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        (folder / "given.txt").write_text("given")
        blocks = [
            CodeBlock(
                "n = open('made.txt', 'w').write(open('given.txt').read() + ' made')", "python"
            ),
            CodeBlock("# filename: helper.py\ndef double(x):\n    return 2 * x", "python"),
            CodeBlock("cat made.txt; echo", "sh"),
            CodeBlock("from helper import double\nprint(double(4))", "python"),
        ]
        result = await executor.execute_code_blocks(blocks)
        assert (result.exit_code, result.output) == (0, "given made\n8\n"), result
        assert (folder / "made.txt").read_text() == "given made"


@check_fresh
async def block_starts_without_state_of_earlier_blocks(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        first = "import os, sys\nx = 1\nos.environ['LEFT'] = '1'\n"
        first += "sys.modules['left'] = sys\nos.chdir('/')"
        second = "import os, sys\nprint('x' in globals(), 'LEFT' in os.environ, "
        second += "'left' in sys.modules, os.getcwd() == '/')"
        result = await executor.execute_code_blocks(
            [CodeBlock(first, "python"), CodeBlock(second, "python")]
        )
        assert result.output == "False False False False\n", result


@check
async def standard_input_is_empty(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, _):
        result = await executor.execute_code_blocks(
            [CodeBlock("import sys\nprint(repr(sys.stdin.read()))", "python")]
        )
        assert (result.exit_code, result.output) == (0, "''\n"), result
        result = await executor.execute_code_blocks([CodeBlock("input('name? ')", "python")])
        assert result.exit_code == 1
        assert "EOFError" in result.stderr
        result = await executor.execute_code_blocks(
            [CodeBlock("cat; read line || echo none", "sh")]
        )
        assert result.output == "none\n", result


@check
async def invalid_arguments_raise_value_error(target: ConformanceTarget) -> None:
    await _expect_error(
        ValueError, "Timeout must be greater than or equal to 1.", lambda: target.create(timeout=0)
    )
    async with target.executor() as (executor, _):
        try:
            await executor.execute_code_blocks([])
        except ValueError:
            pass
        else:
            raise AssertionError("no blocks were accepted")


async def _expect_error(kind: type[Exception], text: str, make: object) -> None:
    try:
        assert callable(make)
        made = make()
        if isinstance(made, Awaitable):
            await made
    except kind as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"{kind.__name__} was not raised")


@check
async def large_block_runs(target: ConformanceTarget) -> None:
    code = "x = [\n" + "    'line',\n" * 100_000 + "]\nprint(len(x))"
    result = await target.run(code)
    assert (result.exit_code, result.output) == (0, "100000\n"), result.output[-300:]


@check
async def windows_line_endings_run(target: ConformanceTarget) -> None:
    result = await target.run("if True:\r\n    print('ok')\r\n")
    assert (result.exit_code, result.output) == (0, "ok\n"), result
