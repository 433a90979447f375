"""Objects of AutoGen's are taken as they are: here classes of the same shape, since AutoGen is no dependency."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kernels
from cellblock import (
    CodeBlock,
    CodeExecutor,
    JupyterCodeExecutor,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
)
from cellblock.cancellation import heeding
from cellblock.testing.subject import assert_dead, heartbeat, until

KINDS: dict[str, Callable[[Path], CodeExecutor]] = {
    "local": lambda folder: LocalCommandLineCodeExecutor(work_dir=folder),
    "sandbox": lambda folder: SandboxCommandLineCodeExecutor(work_dir=folder),
    "session": lambda folder: SandboxSessionCodeExecutor(work_dir=folder),
    "jupyter": lambda folder: JupyterCodeExecutor(work_dir=folder),
}


class TokenLikeAutoGens:
    """It has no `remove_callback`, and calls back with its lock held."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []
        self._cancelled = False
        self._lock = threading.Lock()

    def is_cancelled(self) -> bool:
        with self._lock:
            return self._cancelled

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            for callback in self.callbacks:
                callback()

    def add_callback(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if self._cancelled:
                callback()
            else:
                self.callbacks.append(callback)


@pytest.fixture(autouse=True, scope="module")
def _kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using LocalCommandLineCodeExecutor")
        kernels.prepare(patch, tmp_path_factory.mktemp("jupyter"))
        yield


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
@pytest.mark.parametrize("kind", KINDS)
def test_their_token_cancels_what_runs_and_leaves_the_next_block_alone(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with KINDS[kind](tmp_path) as executor:
            token, used = TokenLikeAutoGens(), TokenLikeAutoGens()
            assert (await executor.execute_code_blocks([CodeBlock("print(1)", "python")], used)).output == "1\n"
            code = "print('so far', end='', flush=True)\n" + heartbeat("life")
            running = asyncio.ensure_future(executor.execute_code_blocks([CodeBlock(code, "python")], token))
            await until((tmp_path / "life").exists, "the block runs")
            used.cancel()
            token.cancel()
            result = await running
            assert (result.exit_code, result.outcome) == (125, "cancelled")
            assert result.output == "so far\nCancelled: Code execution was cancelled."
            await assert_dead(tmp_path / "life")
            assert (await executor.execute_code_blocks([CodeBlock("print(2)", "python")])).output == "2\n"

    asyncio.run(main())


class Held:
    """Something a callback holds."""

    def __init__(self, calls: list[int]) -> None:
        self.calls = calls

    def act(self) -> None:
        self.calls.append(1)


def test_what_stays_with_their_token_holds_nothing_and_does_nothing() -> None:
    async def main() -> list[int]:
        token, calls = TokenLikeAutoGens(), list[int]()
        held = Held(calls)
        gone = weakref.ref(held)
        with heeding(token, asyncio.get_running_loop(), held.act):
            pass
        del held
        gc.collect()
        assert gone() is None
        assert len(token.callbacks) == 1
        token.cancel()
        await asyncio.sleep(0)
        return calls

    assert asyncio.run(main()) == []


def test_a_cancellation_that_comes_with_the_end_is_not_taken_for_the_next_block() -> None:
    async def main() -> list[int]:
        token, calls = TokenLikeAutoGens(), list[int]()
        with heeding(token, asyncio.get_running_loop(), lambda: calls.append(1)):
            token.cancel()
        await asyncio.sleep(0)
        return calls

    assert asyncio.run(main()) == []
