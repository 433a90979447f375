"""Objects of AutoGen's are taken as they are: here classes of the same shape, since AutoGen is no dependency."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    CodeBlock,
    CodeExecutor,
    ComponentError,
    JupyterCodeExecutor,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    fold,
    load_component,
    sync,
)
from cellblock.cancellation import heeding
from cellblock.testing.subject import assert_dead, heartbeat, until
from tests.executors.jupyter import kernels

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


@dataclass
class BlockLikeAutoGens:
    """It is not ours."""

    code: str
    language: str


class BlockLikeAG2s(BlockLikeAutoGens):
    """It can be iterated over, as pydantic's objects can: that gives its fields."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        yield from vars(self).items()


@pytest.fixture(autouse=True, scope="module")
def _kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using LocalCommandLineCodeExecutor")
        kernels.prepare(patch, tmp_path_factory.mktemp("jupyter"))
        yield


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
@pytest.mark.parametrize("kind", KINDS)
def test_their_token_cancels_what_runs_and_leaves_the_next_block_alone(
    kind: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with KINDS[kind](tmp_path) as executor:
            token, used = TokenLikeAutoGens(), TokenLikeAutoGens()
            assert (
                await executor.execute_code_blocks([CodeBlock("print(1)", "python")], used)
            ).output == "1\n"
            code = "print('so far', end='', flush=True)\n" + heartbeat("life")
            running = asyncio.ensure_future(
                executor.execute_code_blocks([CodeBlock(code, "python")], token)
            )
            await until((tmp_path / "life").exists, "the block runs")
            used.cancel()
            token.cancel()
            result = await running
            assert (result.exit_code, result.outcome) == (125, "cancelled")
            assert result.output == "so far\nCancelled: Code execution was cancelled."
            await assert_dead(tmp_path / "life")
            assert (
                await executor.execute_code_blocks([CodeBlock("print(2)", "python")])
            ).output == "2\n"

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


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
@pytest.mark.parametrize("kind", KINDS)
def test_their_blocks_run(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with KINDS[kind](tmp_path) as executor:
            blocks = [BlockLikeAutoGens("print(1)", "python"), BlockLikeAG2s("print(2)", "py")]
            assert (await executor.execute_code_blocks(blocks)).output == "1\n2\n"
            assert [
                block.language
                for block in fold([event async for event in executor.execute_stream(blocks)]).blocks
            ] == [
                "python",
                "py",
            ]
            result = await executor.execute_code_blocks([BlockLikeAG2s("print(3)", "")])
            assert (result.exit_code, result.output.strip()) == (1, "unknown language")

    asyncio.run(main())


ONE = BlockLikeAG2s("1", "python")
NO_BLOCKS: dict[str, tuple[Any, str]] = {
    "one block": (
        CodeBlock("1", "python"),
        r"passed as a list, not as a cellblock\.blocks\.CodeBlock: \[CodeBlock\(code=",
    ),
    "one block of theirs": (ONE, r"passed as a list, not as a test_autogen_objects\.BlockLikeAG2s"),
    "a text": ("print(1)", "passed as a list, not as a str:"),
    "bytes": (b"print(1)", "passed as a list, not as a bytes:"),
    "the values of one block": (vars(ONE), "passed as a list, not as a dict:"),
    "nothing": (None, "passed as a list, not as a NoneType:"),
    "values of blocks": ([vars(ONE)], r"^A dict is no code block: pass \[CodeBlock\(code="),
    "texts": (["print(1)"], "^A str is no code block"),
    "the class": ([CodeBlock], "^A type is no code block"),
    "another object": (
        [ONE, Held([])],
        r"^A tests\.executors\.test_autogen_objects\.Held is no code block",
    ),
    "no code": (
        [CodeBlock(None, "python")],  # pyright: ignore[reportArgumentType] - untyped callers
        "of a cellblock.blocks.CodeBlock must be texts, not NoneType and str",
    ),
    "no language": ([BlockLikeAutoGens("1", 3)], "must be texts, not str and int"),  # pyright: ignore[reportArgumentType] - from untyped callers
    "none in an iterator": (iter(()), r"^There are no code blocks to run\.$"),
}


@pytest.mark.parametrize("name", NO_BLOCKS)
def test_what_is_no_list_of_blocks_is_refused_by_name(name: str, tmp_path: Path) -> None:
    given, message = NO_BLOCKS[name]
    executor = SandboxCommandLineCodeExecutor(work_dir=tmp_path)
    with pytest.raises(ValueError, match=message):
        executor.execute_stream(given)
    with pytest.raises(ValueError, match=message):
        asyncio.run(executor.execute_code_blocks(given))


class ComponentModelLikeAutoGens:
    """It gives its values as pydantic's objects do, and they can be iterated over."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)

    def __iter__(self) -> Iterator[tuple[str, object]]:
        yield from vars(self).items()

    def model_dump(self) -> dict[str, Any]:
        return dict(vars(self))


@pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor")
def test_their_configuration_loads_as_it_is(tmp_path: Path) -> None:
    saved = ComponentModelLikeAutoGens(
        provider="autogen_ext.code_executors.local.LocalCommandLineCodeExecutor",
        component_type="code_executor",
        version=1,
        component_version=1,
        description=None,
        label="LocalCommandLineCodeExecutor",
        config={
            "timeout": 30,
            "work_dir": str(tmp_path),
            "functions_module": "tools",
            "cleanup_temp_files": False,
        },
    )
    for load in (
        load_component,
        LocalCommandLineCodeExecutor.load_component,
        sync.LocalCommandLineCodeExecutor.load_component,
    ):
        executor: Any = load(saved)
        found = (
            executor.timeout,
            executor.work_dir,
            executor.functions_module,
            executor.cleanup_temp_files,
        )
        assert found == (30, tmp_path, "tools", False)


@pytest.mark.parametrize("given", [5, None, ["provider"], LocalCommandLineCodeExecutor])
def test_what_is_no_configuration_is_refused(given: Any) -> None:
    with pytest.raises(ComponentError, match="is no saved configuration: pass a ComponentModel"):
        load_component(given)
