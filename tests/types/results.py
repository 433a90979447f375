"""Type checkers know the fields of each result."""

from pathlib import Path
from typing import assert_type

import cellblock
from cellblock import CodeBlock, sync

BLOCKS = [CodeBlock("1", "python")]


async def executors() -> None:
    program = await cellblock.SandboxCommandLineCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(program.code_file, str | None)
    local = await cellblock.LocalCommandLineCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(local, cellblock.CommandLineCodeResult)
    session = await cellblock.SandboxSessionCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(session.output_files, list[Path])
    assert_type(session.session_restored, bool)
    container = await cellblock.DockerSessionCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(container, cellblock.SessionCodeResult)
    kernel = await cellblock.JupyterCodeExecutor().execute_code_blocks(BLOCKS)
    assert_type(kernel, cellblock.JupyterCodeResult)
    assert_type(session.check(), cellblock.SessionCodeResult)


def sync_executors(folder: Path) -> None:
    with sync.SandboxCommandLineCodeExecutor(30, work_dir=folder) as executor:
        program = executor.execute_code_blocks(BLOCKS)
        assert_type(program, cellblock.CommandLineCodeResult)
    with sync.SandboxSessionServer(preload=["json"]) as server:
        with server.session(timeout=5, work_dir=folder) as session:
            assert_type(session.execute_code_blocks(BLOCKS), cellblock.SessionCodeResult)
            for branch in session.fork(2):
                assert_type(branch, sync.SandboxSessionCodeExecutor)
    with sync.JupyterCodeExecutor("python3") as kernel:
        assert_type(kernel.execute_code_blocks(BLOCKS), cellblock.JupyterCodeResult)
