"""The live Python of a box, and copies of the whole box."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from ...box.base import Box
from ...errors import CellblockError, CheckpointError
from ...events import Ended, Output
from .endings import BEAT, check_beats, check_silent, wait_for_file
from .registry import check_box, raises


@check_box
async def variables_are_kept_and_files_are_shared(box: Box) -> None:
    await box.files.write("data", "41")
    assert (await box.run_code("x = int(open('data').read()) + 1")).exit_code == 0
    result = await box.run_code("open('out', 'w').write(str(x)); x")
    assert (result.exit_code, result.output) == (0, "42\n"), result
    assert (await box.exec(["cat", "out"])).stdout == b"42"
    assert await box.session.get("x") == 42


@check_box
async def temporary_files_and_the_home_folder_are_shared(box: Box) -> None:
    await box.exec("echo one > /tmp/one; echo two > ~/two")
    code = "import os; open('/tmp/one').read() + open(os.path.expanduser('~/two')).read()"
    assert (await box.run_code(code)).output == "'one\\ntwo\\n'\n"
    await box.run_code("open('/tmp/three', 'w').write('three')")
    assert await box.files.read("/tmp/three") == b"three"


@check_box
async def other_languages_and_failures_are_results(box: Box) -> None:
    result = await box.run_code("echo hi; exit 3", "sh")
    assert (result.exit_code, result.output) == (3, "hi\n"), result
    assert (await box.run_code("1 / 0")).exit_code == 1
    with raises(ValueError):
        await box.run_code(5)  # pyright: ignore[reportArgumentType] - on purpose


@check_box
async def a_block_has_a_time_limit(box: Box) -> None:
    await box.run_code("x = 1")
    result = await box.run_code("x = 2\nimport time\ntime.sleep(600)", timeout=1)
    assert (result.exit_code, result.outcome) == (124, "timeout"), result
    assert (await box.run_code("x")).output == "2\n"


@check_box
async def events_of_a_block_are_streamed(box: Box) -> None:
    events = [event async for event in box.stream_code("print('hi')")]
    pieces = [event.text for event in events if isinstance(event, Output)]
    assert "".join(pieces) == "hi\n", events
    assert isinstance(events[-1], Ended), events


@check_box
async def blocks_and_commands_run_at_once(box: Box) -> None:
    block = "import os, time\nopen('block', 'w').close()\n"
    block += "while not os.path.exists('command'): time.sleep(0.01)"
    running = asyncio.ensure_future(box.run_code(block))
    await wait_for_file(box, "block")
    assert (await box.exec(["touch", "command"])).exit_code == 0
    assert (await running).exit_code == 0


@check_box
async def a_block_whose_events_nobody_reads_holds_up_nothing_else(box: Box) -> None:
    events = box.stream_code("for number in range(9000): display(number)")
    await anext(events)
    for _ in range(10):
        assert (await box.exec("head -c 1000000 /dev/zero; sleep 0.1")).exit_code == 0
    sleeping = asyncio.create_task(box.exec("touch begun; sleep 600"))
    await wait_for_file(box, "begun")
    sleeping.cancel()
    await asyncio.wait([sleeping])
    assert sleeping.cancelled()
    await events.aclose()
    assert (await box.run_code("1")).output == "1\n"


@check_box
async def a_checkpoint_has_files_and_variables(box: Box) -> None:
    await box.run_code("x = 1")
    await box.files.write("file", "one")
    checkpoint = await box.checkpoint()
    await box.run_code("x = 2")
    await box.files.write("file", "two")
    await box.files.write("new", "")
    await box.restore(checkpoint)
    assert await box.session.get("x") == 1
    assert await box.files.read("file") == b"one"
    assert not await box.files.exists("new")
    assert box.checkpoints == (checkpoint,)
    await box.drop(checkpoint)
    assert box.checkpoints == ()


@check_box
async def a_fork_is_a_box_of_its_own(box: Box) -> None:
    await box.run_code("x = 1")
    await box.files.write("file", "one")
    async with _forked(box, 2) as branches:
        assert len({box.id, *(branch.id for branch in branches)}) == 3
        for number, branch in enumerate(branches):
            await branch.files.write("file", str(number))
            await branch.session.set("x", number + 10)
            assert (await branch.exec("pwd -P")).stdout_text == f"{branch.inner_work_dir}\n"
        for number, branch in enumerate(branches):
            assert (await branch.exec(["cat", "file"])).stdout == b"%d" % number
            assert await branch.session.get("x") == number + 10
    assert await box.files.read("file") == b"one"
    assert await box.session.get("x") == 1


@contextlib.asynccontextmanager
async def _forked(box: Box, count: int) -> AsyncGenerator[list[Box]]:
    branches = await box.fork(count)
    try:
        yield branches
    finally:
        for branch in branches:
            await branch.close()


@check_box
async def running_commands_refuse_copies_by_name(box: Box) -> None:
    checkpoint = await box.checkpoint()
    running = asyncio.ensure_future(box.exec(f"sh -c '{BEAT.format(name='own')}'", timeout=600))
    await wait_for_file(box, "own")
    for copying in (box.checkpoint(), box.fork(), box.restore(checkpoint)):
        with raises(CheckpointError, text="own"):
            await copying
    await check_beats(box, "own")
    assert box.checkpoints == (checkpoint,)
    await box.checkpoint(end_commands=True)
    assert (await running).exit_code == 137
    await check_silent(box, "own")


@check_box
async def a_command_after_a_copy_sees_the_restored_files(box: Box) -> None:
    await box.files.write("file", "one")
    checkpoint = await box.checkpoint("first")
    await box.exec("echo two > file")
    await box.restore("first")
    assert (await box.exec(["cat", "file"])).stdout == b"one"
    with raises(CellblockError, text="gone"):
        await box.restore("gone")
    await box.drop(checkpoint)
