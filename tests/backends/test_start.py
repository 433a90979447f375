"""Starting a backend: a failed start leaves nothing behind and says what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from cellblock import BackendError, BackendLost, CodeBlock, Policy, SandboxCommandLineCodeExecutor
from cellblock.backends.connection import start_server
from cellblock.environments.interpreter import find_interpreter


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_start_cancelled_at_any_moment_leaves_nothing(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work_dir = tmp_path_factory.mktemp("work")

    async def main() -> None:
        for number in range(20):
            executor = SandboxCommandLineCodeExecutor(work_dir=work_dir)
            starting = asyncio.ensure_future(executor.start())
            await asyncio.sleep(0.002 + 0.006 * number)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            await executor.stop()

    asyncio.run(main())
    assert list(temporary.iterdir()) == []


def test_missing_path_in_a_policy_is_reported(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    policy = Policy(read_only=("/nowhere/at/all",))
    executor = SandboxCommandLineCodeExecutor(
        work_dir=tmp_path_factory.mktemp("work"), policy=policy
    )
    with pytest.raises(BackendError, match="/nowhere/at/all, which does not exist"):
        asyncio.run(executor.start())
    assert list(temporary.iterdir()) == []


def test_server_that_cannot_be_started_is_a_backend_error() -> None:
    with pytest.raises(BackendError, match="/nowhere/python"):
        asyncio.run(start_server("", {}, python="/nowhere/python"))


def test_error_quotes_a_server_that_exits_at_once() -> None:
    with pytest.raises(BackendError, match="famous last words"):
        asyncio.run(start_server("import sys; sys.exit('famous last words')", {}))


def test_program_that_is_not_python_is_a_backend_error() -> None:
    with pytest.raises(BackendError, match="/bin/true cannot be used as the Python"):
        asyncio.run(find_interpreter("/bin/true"))
    assert (
        asyncio.run(find_interpreter(None)).version
        == f"{sys.version_info[0]}.{sys.version_info[1]}"
    )


def test_killed_server_is_not_a_result_of_the_program(tmp_path: Path, temporary: Path) -> None:
    tmp_path = tmp_path / "work"

    async def main() -> None:
        async with SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
            running = asyncio.ensure_future(
                executor.execute_code_blocks(
                    [CodeBlock("open('runs', 'w'); import time; time.sleep(600)", "python")]
                )
            )
            while not (tmp_path / "runs").exists():
                await asyncio.sleep(0.01)
            assert executor._connection is not None
            os.kill(executor._connection.pid, signal.SIGKILL)
            with pytest.raises(BackendLost, match="ended unexpectedly"):
                await running
            await executor.restart()
            result = await executor.execute_code_blocks([CodeBlock("print('again')", "python")])
            assert result.output == "again\n"

    asyncio.run(main())
    assert [path.name for path in temporary.iterdir()] == ["work"]
