"""Spans of blocks, commands and sessions."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from opentelemetry import trace

import cellblock.sync
from cellblock import (
    CancellationToken,
    CodeBlock,
    FunctionError,
    Sandbox,
    SandboxCommandLineCodeExecutor,
    SandboxSessionCodeExecutor,
    with_requirements,
)
from cellblock.events import Output
from tests.tracing.recorded import Recorded, attributes, error_of

pytestmark = pytest.mark.anyio
FOREVER = "import os, signal\nos.write(1, b'begun')\nwhile True: signal.pause()"


def python(code: str) -> list[CodeBlock]:
    return [CodeBlock(code, "python")]


async def test_each_block_is_a_span_with_its_outcome(
    recorded: Recorded, executor: SandboxCommandLineCodeExecutor
) -> None:
    blocks = [CodeBlock("print(1)", "python"), CodeBlock("exit 3", "sh")]
    await executor.execute_code_blocks(blocks)
    first, second = recorded.all()
    assert attributes(first) == {
        "cellblock.executor": "SandboxCommandLineCodeExecutor",
        "cellblock.language": "python",
        "cellblock.outcome": "ok",
        "cellblock.exit_code": 0,
    }
    assert first.status.status_code.name == "UNSET"
    assert attributes(second)["cellblock.exit_code"] == 3
    assert error_of(second) == ("ERROR", "error")
    known = second.attributes or {}
    assert isinstance(known["cellblock.cpu_seconds"], float)
    assert isinstance(known["cellblock.peak_memory_bytes"], int)


async def test_a_limit_is_named(recorded: Recorded) -> None:
    async with SandboxCommandLineCodeExecutor(timeout=1) as executor:
        await executor.execute_code_blocks(python(FOREVER))
    assert recorded.tree() == ["cellblock.start", "cellblock.run"]
    run_span = recorded.one("cellblock.run")
    assert attributes(run_span)["cellblock.limit"] == "wall_seconds"
    assert error_of(run_span) == ("ERROR", "timeout")


async def test_a_start_that_fails_names_the_error(recorded: Recorded) -> None:
    @with_requirements(global_imports=["missing_module"])
    def broken() -> int:
        return 1

    with pytest.raises(FunctionError):
        await SandboxCommandLineCodeExecutor(functions=[broken]).start()
    assert recorded.tree() == ["cellblock.start"]
    assert error_of(recorded.one("cellblock.start")) == ("ERROR", "cellblock.errors.FunctionError")


@pytest.mark.parametrize("how", ["task", "token", "closed stream"])
def test_a_cancelled_run_ends_its_span(
    recorded: Recorded, executor: SandboxCommandLineCodeExecutor, how: str
) -> None:
    async def run() -> None:
        token = CancellationToken()
        stream = executor.execute_stream(python(FOREVER), token)
        async with contextlib.aclosing(stream):
            async for event in stream:
                match event, how:
                    case Output(), "token":
                        token.cancel()
                    case Output(), "task":
                        raise asyncio.CancelledError
                    case Output(), _:
                        break
                    case _:
                        pass

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run())
    assert error_of(recorded.one("cellblock.run")) == ("ERROR", "cancelled")


async def test_spans_are_below_those_of_the_caller(
    recorded: Recorded, executor: SandboxCommandLineCodeExecutor
) -> None:
    tracer = trace.get_tracer("caller")

    async def run(name: str) -> None:
        with tracer.start_as_current_span(name):
            await executor.execute_code_blocks(python("1"))
            async for _ in executor.execute_stream(python("2")):
                with tracer.start_as_current_span(f"after an event of {name}"):
                    pass

    await asyncio.gather(run("a"), run("b"))
    names = {line for line in recorded.tree() if not line.startswith("  ")}
    assert names == {"a", "b"}
    for name in names:
        own = recorded.one(name).get_span_context()
        assert own is not None
        children = [each for each in recorded.all() if each.parent == own]
        runs = [each for each in children if each.name == "cellblock.run"]
        assert len(runs) == 2
        assert {each.name for each in children} == {"cellblock.run", f"after an event of {name}"}


def test_context_crosses_the_synchronous_face_and_threads(
    recorded: Recorded, executor: SandboxCommandLineCodeExecutor
) -> None:
    face = cellblock.sync.SandboxCommandLineCodeExecutor.__new__(
        cellblock.sync.SandboxCommandLineCodeExecutor
    )
    face._executor = executor

    def run(name: str) -> None:
        with trace.get_tracer("caller").start_as_current_span(name):
            face.execute_code_blocks(python("1"))
            list(face.execute_stream(python("2")))

    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    below = ["  cellblock.run", "  cellblock.run"]
    assert recorded.tree() in (["a", *below, "b", *below], ["b", *below, "a", *below])


async def test_sessions_and_commands_have_spans_with_their_box_id(
    recorded: Recorded,
) -> None:
    async with Sandbox() as box:
        await box.exec(["/bin/sh", "-c", "exit 3"])
        _ = [item async for item in box.exec_stream("pwd")]
        await box.run_code("x = 1")
        await box.checkpoint("c")
        async with box.shell() as shell:
            await shell.run("cd /")
        [branch] = await box.fork()
        async with branch:
            await branch.run_code("x")
        await (await box.spawn(["true"])).wait()
        await box.restore("c")
    spans = recorded.all()
    assert [each.name.removeprefix("cellblock.") for each in spans] == [
        *("start", "exec", "exec", "run", "checkpoint", "exec", "fork", "run", "spawn", "restore")
    ]
    ids = [attributes(each)["cellblock.session.id"] for each in spans]
    assert ids == [*[box.id] * 7, branch.id, *[box.id] * 2]
    assert attributes(spans[1])["process.executable.name"] == "sh"
    assert attributes(spans[1])["process.exit.code"] == 3
    assert error_of(spans[1]) == ("ERROR", "error")


async def test_a_session_keeps_its_id(recorded: Recorded) -> None:
    async with SandboxSessionCodeExecutor() as one, SandboxSessionCodeExecutor() as other:
        for session in (one, one, other):
            await session.execute_code_blocks(python("1"))
    runs = [attributes(each) for each in recorded.all() if each.name == "cellblock.run"]
    first, second, third = (each["cellblock.session.id"] for each in runs)
    assert first == second != third


CODE = "import os; os.write(1, b'MARK' + b'ER'); raise SystemExit('MAR' + 'KER')  # MARKER"


async def use_everything(executor: SandboxCommandLineCodeExecutor, marker: str) -> None:
    """Run code and commands that contain and print `marker`."""
    await executor.execute_code_blocks(python(CODE))
    async with Sandbox() as box:
        await box.run_code(CODE)
        await box.exec(f"echo {marker}")
        async with box.shell() as shell:
            await shell.run(f"echo {marker}")
        with contextlib.suppress(cellblock.CellblockError):
            await box.restore(marker)


async def test_no_content_unless_asked(
    recorded: Recorded, executor: SandboxCommandLineCodeExecutor
) -> None:
    await use_everything(executor, "MARKER")
    assert len(recorded.all()) == 6
    assert "MARKER" not in recorded.text()


async def test_content_if_asked(
    with_content: Recorded, executor: SandboxCommandLineCodeExecutor
) -> None:
    await use_everything(executor, "MARKER")
    runs = [each for each in with_content.all() if each.name in ("cellblock.run", "cellblock.exec")]
    assert len(runs) == 4
    for each in runs:
        known = attributes(each)
        assert "MARKER" in str(known.get("cellblock.code") or known["process.command_args"])
        assert "MARKER" in str(known["cellblock.output"])
    [exception] = with_content.one("cellblock.restore").events
    assert "MARKER" in str((exception.attributes or {})["exception.message"])


async def test_text_that_is_not_unicode_can_be_exported(with_content: Recorded) -> None:
    async with Sandbox() as box:
        await box.exec(["echo", "caf\udce9"])
    arguments = attributes(with_content.one("cellblock.exec"))["process.command_args"]
    assert arguments == ("echo", "caf?")
