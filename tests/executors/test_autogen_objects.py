"""AutoGen's objects are accepted. AutoGen is no dependency, so the tests use similar classes."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
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
    DockerJupyterServer,
    JupyterCodeExecutor,
    LocalCommandLineCodeExecutor,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    fold,
    load_component,
    sync,
)
from cellblock.cancellation import on_cancel
from cellblock.testing.liveness import assert_dead, heartbeat, wait_until

pytestmark = [
    pytest.mark.usefixtures("kernel_specs"),
    pytest.mark.filterwarnings("ignore:Using LocalCommandLineCodeExecutor"),
]
KINDS: dict[str, Callable[[Path], CodeExecutor]] = {
    "local": lambda folder: LocalCommandLineCodeExecutor(work_dir=folder),
    "sandbox": lambda folder: SandboxCommandLineCodeExecutor(work_dir=folder),
    "session": lambda folder: SandboxSessionCodeExecutor(work_dir=folder),
    "jupyter": lambda folder: JupyterCodeExecutor(work_dir=folder),
}
STARTED = ["local", "sandbox", "session", pytest.param("jupyter", marks=pytest.mark.kernel)]


class AutoGenToken:
    """A token without `remove_callback` that calls the callbacks while it holds its lock."""

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
class AutoGenBlock:
    """A code block that is not a `cellblock.CodeBlock`."""

    code: str
    language: str


class AG2Block(AutoGenBlock):
    """An iterable code block. Like a pydantic object, it yields its fields."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        yield from vars(self).items()


@pytest.mark.parametrize("kind", STARTED)
async def test_blocks_of_autogen_run_and_its_token_cancels_the_running_one_only(
    kind: str, tmp_path: Path
) -> None:
    async with KINDS[kind](tmp_path) as executor:
        blocks = [AutoGenBlock("print(1)", "python"), AG2Block("print(2)", "py")]
        assert (await executor.execute_code_blocks(blocks)).output == "1\n2\n"
        streamed = fold([event async for event in executor.execute_stream(blocks)])
        assert [block.language for block in streamed.blocks] == ["python", "py"]
        result = await executor.execute_code_blocks([AG2Block("print(3)", "")])
        assert (result.exit_code, result.output.strip()) == (1, "unknown language")
        token, used = AutoGenToken(), AutoGenToken()
        assert (
            await executor.execute_code_blocks([CodeBlock("print(1)", "python")], used)
        ).output == "1\n"
        code = "print('so far', end='', flush=True)\n" + heartbeat("life")
        running = asyncio.ensure_future(
            executor.execute_code_blocks([CodeBlock(code, "python")], token)
        )
        await wait_until((tmp_path / "life").exists, "the block runs")
        used.cancel()
        token.cancel()
        result = await running
        assert (result.exit_code, result.outcome) == (125, "cancelled")
        assert result.output == "so far\nCancelled: Code execution was cancelled."
        await assert_dead(tmp_path / "life")
        assert (
            await executor.execute_code_blocks([CodeBlock("print(2)", "python")])
        ).output == "2\n"


class CallbackTarget:
    """An object that a callback refers to."""

    def __init__(self, calls: list[int]) -> None:
        self.calls = calls

    def act(self) -> None:
        self.calls.append(1)


def test_a_callback_left_on_an_autogen_token_keeps_no_reference_and_does_nothing() -> None:
    async def main() -> list[int]:
        token, calls = AutoGenToken(), list[int]()
        target = CallbackTarget(calls)
        reference = weakref.ref(target)
        with on_cancel(token, asyncio.get_running_loop(), target.act):
            pass
        del target
        gc.collect()
        assert reference() is None
        assert len(token.callbacks) == 1
        token.cancel()
        await asyncio.sleep(0)
        return calls

    assert asyncio.run(main()) == []


def test_a_cancellation_at_the_end_of_a_block_does_not_affect_the_next_block() -> None:
    async def main() -> list[int]:
        token, calls = AutoGenToken(), list[int]()
        with on_cancel(token, asyncio.get_running_loop(), lambda: calls.append(1)):
            token.cancel()
        await asyncio.sleep(0)
        return calls

    assert asyncio.run(main()) == []


ONE_BLOCK = AG2Block("1", "python")
INVALID_BLOCKS: dict[str, tuple[Any, str]] = {
    "one block": (
        CodeBlock("1", "python"),
        r"blocks as a list, not as a cellblock\.blocks\.CodeBlock: \[CodeBlock\(code=",
    ),
    "one block of theirs": (
        ONE_BLOCK,
        r"blocks as a list, not as a tests\.executors\.test_autogen_objects\.AG2Block",
    ),
    "a text": ("print(1)", "blocks as a list, not as a str:"),
    "bytes": (b"print(1)", "blocks as a list, not as a bytes:"),
    "the values of one block": (vars(ONE_BLOCK), "blocks as a list, not as a dict:"),
    "nothing": (None, "blocks as a list, not as a NoneType:"),
    "values of blocks": (
        [vars(ONE_BLOCK)],
        r"^A dict is not a code block\. Pass \[CodeBlock\(code=",
    ),
    "texts": (["print(1)"], "^A str is not a code block"),
    "the class": ([CodeBlock], "^A type is not a code block"),
    "another object": (
        [ONE_BLOCK, CallbackTarget([])],
        r"^A tests\.executors\.test_autogen_objects\.CallbackTarget is not a code block",
    ),
    "no code": (
        [CodeBlock(None, "python")],  # pyright: ignore[reportArgumentType] - untyped callers
        "of a cellblock.blocks.CodeBlock must be strings, not NoneType and str",
    ),
    "no language": ([AutoGenBlock("1", 3)], "must be strings, not str and int"),  # pyright: ignore[reportArgumentType] - from untyped callers
    "none in an iterator": (iter(()), r"^There are no code blocks to run\."),
}


def refusal(make: Callable[[], object]) -> str:
    try:
        make()
    except (ValueError, ComponentError) as error:
        return str(error)
    return "nothing was raised"


def test_invalid_lists_of_blocks_are_refused_and_named(tmp_path: Path) -> None:
    executor = SandboxCommandLineCodeExecutor(work_dir=tmp_path)
    faults: list[tuple[str, str]] = []
    for name, (given, message) in INVALID_BLOCKS.items():
        for use in (
            lambda given=given: executor.execute_stream(given),
            lambda given=given: asyncio.run(executor.execute_code_blocks(given)),
        ):
            if not re.search(message, said := refusal(use)):
                faults.append((name, said))
    assert faults == []


class AutoGenComponentModel:
    """A component model that offers its values as pydantic objects do."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)

    def __iter__(self) -> Iterator[tuple[str, object]]:
        yield from vars(self).items()

    def model_dump(self) -> dict[str, Any]:
        return dict(vars(self))


def test_an_autogen_configuration_loads_unchanged(tmp_path: Path) -> None:
    saved = AutoGenComponentModel(
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


def test_an_invalid_configuration_is_refused() -> None:
    wrongs: list[Any] = [5, None, ["provider"], LocalCommandLineCodeExecutor]
    for wrong in wrongs:
        with pytest.raises(ComponentError, match="is not a saved configuration. Pass a Component"):
            load_component(wrong)


def test_the_dockerfile_of_the_jupyter_server_can_be_read_and_not_be_replaced() -> None:
    assert DockerJupyterServer.DEFAULT_DOCKERFILE.startswith("FROM python:3-slim\n")
    with pytest.raises(TypeError, match=r"Mine.DEFAULT_DOCKERFILE would not be built.*base_image="):
        type("Mine", (DockerJupyterServer,), {"DEFAULT_DOCKERFILE": "FROM x"})
