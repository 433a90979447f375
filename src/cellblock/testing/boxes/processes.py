"""Processes that live on between calls: their input, output, signals and end."""

from __future__ import annotations

import asyncio

from ...box.base import Box
from .endings import BEAT, check_silent, wait_for_file
from .registry import check_box, raises


@check_box
async def a_process_answers_what_is_sent(box: Box) -> None:
    async with await box.spawn(["cat"]) as process:
        assert process.pid > 0
        assert process.poll() is None
        pieces = aiter(process)
        for text in (b"one\n", b"two\0\n"):
            await process.send(text)
            assert await anext(pieces) == (1, text)
        await process.close_stdin()
        assert [piece async for piece in pieces] == []
        result = await process.wait()
        assert (result.exit_code, process.poll()) == (0, 0), result


@check_box
async def waiting_returns_the_output_that_was_not_read(box: Box) -> None:
    process = await box.spawn("echo one; echo two >&2; exit 3")
    result = await process.wait()
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"one\n", b"two\n"), result
    assert await process.wait() == result
    assert [piece async for piece in process] == []


@check_box
async def a_wait_that_is_too_long_leaves_the_process_running(box: Box) -> None:
    process = await box.spawn("echo begun; read x; echo $x")
    with raises(TimeoutError, text=r"within 0.1 s"):
        await process.wait(0.1)
    await process.send(b"go\n")
    result = await process.wait()
    assert result.stdout == b"begun\ngo\n", result


@check_box
async def a_process_whose_output_is_not_read_waits(box: Box) -> None:
    process = await box.spawn("head -c 100000000 /dev/zero; touch ended")
    for _ in range(5):  # others go on
        assert len((await box.exec("head -c 1000000 /dev/zero")).stdout) == 1_000_000
    assert not await box.files.exists("ended")
    assert process.poll() is None
    size = 0
    async for stream, data in process:
        assert stream == 1
        size += len(data)
    assert size == 100_000_000
    assert (await process.wait()).exit_code == 0


@check_box
async def a_process_whose_output_is_left_out_does_not_wait(box: Box) -> None:
    process = await box.spawn("head -c 5000000 /dev/zero; touch ended", max_output_bytes=0)
    await wait_for_file(box, "ended")
    result = await process.wait()
    assert (result.exit_code, result.stdout, result.truncated) == (0, b"", True), result


@check_box
async def a_signal_reaches_the_group_of_the_process(box: Box) -> None:
    process = await box.spawn(f"({BEAT.format(name='child')}) & wait")
    await wait_for_file(box, "child")
    await process.kill(15)
    assert (await process.wait()).exit_code == 143
    await check_silent(box, "child")
    await process.kill()


@check_box
async def leaving_the_block_kills_the_process(box: Box) -> None:
    async with await box.spawn(BEAT.format(name="own")) as process:
        await wait_for_file(box, "own")
    await check_silent(box, "own")
    assert process.poll() == 137
    await process.kill()
    with raises(BrokenPipeError):
        await process.send(b"late")


@check_box
async def a_process_has_a_time_limit(box: Box) -> None:
    process = await box.spawn("echo begun; sleep 600", timeout=2)
    result = await process.wait()
    assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"begun\n"), result


@check_box
async def processes_run_at_once(box: Box) -> None:
    processes = [await box.spawn(["cat"]) for _ in range(5)]
    for number, process in enumerate(processes):
        await process.send(b"%d" % number)
        await process.close_stdin()
    results = await asyncio.gather(*(process.wait() for process in reversed(processes)))
    assert [result.stdout for result in results] == [b"4", b"3", b"2", b"1", b"0"]


@check_box
async def a_missing_program_is_no_process(box: Box) -> None:
    process = await box.spawn(["no-such-program"])
    assert (await process.wait()).exit_code == 127
    with raises(FileNotFoundError, text="gone"):
        await box.spawn(["true"], cwd="gone")
