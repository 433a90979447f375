"""Starting a backend: a failed start leaves nothing behind and says what is wrong."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock import (
    BackendError,
    BackendLost,
    CodeBlock,
    LocalCommandLineCodeExecutor,
    Policy,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
)
from cellblock.aio.background_loop import background_loop
from cellblock.backends.connection import start_server
from cellblock.environments.virtualenv import find_interpreter
from cellblock.executors.command_line.base import CommandLineExecutor
from cellblock.executors.session.base import SessionExecutor
from cellblock.runtime.linux import process_tree
from cellblock.runtime.messages import TenantSpec
from cellblock.runtime.spec import CellLimits, SandboxSpec, ServerSpec, ZygoteSpec
from tests.cancelling_awaits import CancellingAwaits
from tests.executors.session.live_session import skip_without_sandbox
from tests.suite.tiers import exhaustive

pytestmark = [
    pytest.mark.depends_on_user,
    pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor"),
]


def _one() -> int:
    """Return 1."""
    return 1


KINDS: dict[str, Callable[..., CommandLineExecutor | SessionExecutor]] = {
    "local": LocalCommandLineCodeExecutor,
    "sandbox": functools.partial(SandboxCommandLineCodeExecutor, functions=[_one]),
    "landlock": functools.partial(SandboxCommandLineCodeExecutor, isolation="landlock"),
    "session": SandboxSessionCodeExecutor,
}


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the empty folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


class Cancellations:
    """Cancels a method of executors of one kind, and checks that nothing is left each time."""

    def __init__(self, kind: str, method: str, temporary: Path, work_dir: Path) -> None:
        self._kind, self._method = kind, method
        self._temporary, self._work_dir = temporary, work_dir
        self._others = set(process_tree.children(os.getpid()))

    def cancel_at(self, number: int, *, late: bool) -> int:
        """Cancel the method of a new executor at an await, if it gets there. Return their count."""
        executor = KINDS[self._kind](work_dir=self._work_dir)
        if self._method != "start":
            asyncio.run(executor.start())
        awaits = CancellingAwaits(getattr(executor, self._method)(), number, late=late)
        was_cancelled = False
        try:
            asyncio.run(background_loop().call(awaits.run()))
        except asyncio.CancelledError:
            was_cancelled = True
        else:
            asyncio.run(executor.stop())
        assert list(self._temporary.iterdir()) == [], f"await {number}"
        assert set(process_tree.children(os.getpid())) <= self._others, f"await {number}"
        assert was_cancelled or awaits.count < number
        return awaits.count


@pytest.fixture
def cancellations(
    kind: str, method: str, temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Cancellations:
    skip_without_sandbox()
    return Cancellations(kind, method, temporary, tmp_path_factory.mktemp("work"))


METHODS = ["start", "restart", "stop"]
FIRST = {("local", "start"), ("sandbox", "restart"), ("landlock", "stop"), ("session", "start")}


@pytest.mark.parametrize(
    ("kind", "method"), exhaustive(itertools.product(KINDS, METHODS), keep=FIRST.__contains__)
)
def test_nothing_is_left_by_a_cancellation_at_the_middle_await(
    cancellations: Cancellations,
) -> None:
    middle = max(1, cancellations.cancel_at(sys.maxsize, late=False) // 2)
    cancellations.cancel_at(middle, late=False)
    cancellations.cancel_at(middle + 1, late=True)


@pytest.mark.slow
@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_by_a_cancellation_at_any_await(
    cancellations: Cancellations, late: bool
) -> None:
    for number in itertools.count(1):
        if cancellations.cancel_at(number, late=late) < number:
            assert number > 1
            return


@pytest.mark.parametrize("method", ["start", "__aenter__"])
def test_start_that_is_cancelled_when_it_is_done_leaves_nothing(
    method: str, temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skip_without_sandbox()
    others = set(process_tree.children(os.getpid()))
    started = (
        SandboxCommandLineCodeExecutor(work_dir=tmp_path_factory.mktemp("work"))
        if method == "start"
        else SandboxSessionServer()
    )
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(CancellingAwaits(getattr(started, method)(), 1, late=True).run())
    assert list(temporary.iterdir()) == []
    assert set(process_tree.children(os.getpid())) <= others


async def test_server_ends_with_its_owner_while_its_launcher_is_blocked(tmp_path: Path) -> None:
    program = f"""
import pathlib, sys, time, types
package = sys.modules["cellblock"] = types.ModuleType("cellblock")
package.__path__ = [sys.argv[1]]
from cellblock.runtime import main

def launch(*_):
    pathlib.Path({str(tmp_path / "launches")!r}).touch()
    time.sleep(3600)

main.main(launch)
"""

    sandbox = SandboxSpec((), (), {}, {}, 1000, "none", (), "name", (), {}, {})
    spec = ServerSpec(ZygoteSpec(namespaces=True), CellLimits(), sandbox=sandbox)
    starting = asyncio.ensure_future(start_server(program, spec))
    while not (tmp_path / "launches").exists():
        await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting


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


async def test_an_error_names_the_server_that_cannot_be_started() -> None:
    with pytest.raises(BackendError, match="/nowhere/python"):
        await start_server("", TenantSpec(), python="/nowhere/python")
    with pytest.raises(BackendError, match="famous last words"):
        await start_server("import sys; sys.exit('famous last words')", TenantSpec())
    with pytest.raises(BackendError, match="/bin/true cannot be used as the Python"):
        await find_interpreter("/bin/true")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert (await find_interpreter(None)).version == version


async def test_killed_server_is_not_a_result_of_the_program(
    tmp_path: Path, temporary: Path
) -> None:
    tmp_path = tmp_path / "work"

    async with SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        running = asyncio.ensure_future(
            executor.execute_code_blocks(
                [CodeBlock("open('runs', 'w'); import time; time.sleep(600)", "python")]
            )
        )
        while not (tmp_path / "runs").exists():
            await asyncio.sleep(0.01)
        assert executor.place.connection is not None
        os.kill(executor.place.connection.pid, signal.SIGKILL)
        with pytest.raises(BackendLost, match="ended unexpectedly"):
            await running
        await executor.restart()
        result = await executor.execute_code_blocks([CodeBlock("print('again')", "python")])
        assert result.output == "again\n"
    assert [path.name for path in temporary.iterdir()] == ["work"]
