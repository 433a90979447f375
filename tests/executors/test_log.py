"""The logger `cellblock` reports starts, limits and losses, but no code and no output."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import pytest

from cellblock import BackendLost, CodeBlock, Limits
from cellblock.sync import SandboxCommandLineCodeExecutor, SandboxSessionCodeExecutor


def block(code: str) -> list[CodeBlock]:
    return [CodeBlock(code, "python")]


def lines(caplog: pytest.LogCaptureFixture, level: int) -> str:
    return "\n".join(
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("cellblock.") and record.levelno == level
    )


def test_start_blocks_limits_and_stop_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "cellblock")
    limits = Limits(written_bytes=1 << 20)
    with SandboxCommandLineCodeExecutor(work_dir=tmp_path, limits=limits) as executor:
        executor.execute_code_blocks(block("word = 'sec' + 'ret'; print(word)"))
        executor.execute_code_blocks(
            block("with open('x', 'wb') as file:\n while True: file.write(bytes(1 << 20))")
        )
        executor.restart()
    found, blocks = lines(caplog, logging.INFO), lines(caplog, logging.DEBUG)
    assert found.count("started") >= 2
    assert "reached the limit written_bytes" in found
    assert "restarts" in found
    assert "was stopped" in found
    assert "a python block ended: ok, exit code 0" in blocks
    assert "word" not in caplog.text
    assert "secret" not in caplog.text


def test_lost_server_and_restored_session_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "cellblock")
    with SandboxSessionCodeExecutor() as session:
        session.execute_code_blocks(block("x = 1"))
        session.execute_code_blocks(block("import os; os.kill(os.getpid(), 9)"))
        assert "The session was restored" in lines(caplog, logging.INFO)
        server = session._executor.place.connection
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(BackendLost):
            session.execute_code_blocks(block("import time; time.sleep(600)"))
        assert "was lost" in lines(caplog, logging.INFO)


def test_repr_names_the_executor_its_folder_and_whether_it_runs(tmp_path: Path) -> None:
    executor = SandboxCommandLineCodeExecutor(timeout=5, work_dir=tmp_path)
    settings = f"<SandboxCommandLineCodeExecutor timeout=5 work_dir={str(tmp_path)!r}"
    assert repr(executor) == f"{settings} not started>"
    with executor:
        assert repr(executor) == f"{settings} started>"
    assert "temporary work_dir" in repr(SandboxSessionCodeExecutor())
