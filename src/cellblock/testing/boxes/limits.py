"""Limits: they hold for the box as a whole, and what reaches one does not end the box."""

from __future__ import annotations

import asyncio
import errno

from ...box.base import Box
from ...limits import MIB, Limits
from .endings import SETSID
from .registry import BoxTarget, check_target, raises

_MEMORY = Limits(memory_bytes=256 * MIB)
_FOLDERS = ("/tmp", "/dev/shm")
_WRITTEN = Limits(written_bytes=20 * MIB)
_FILES = Limits(files=200)
# Writes until it is ended. What others remove from the same disk meanwhile can hide as much.
_PIECES = "while :; do head -c 1M /dev/zero >> {name}; sleep 0.01; done"


async def _fill(box: Box) -> None:
    for folder in _FOLDERS:
        result = await box.exec(f"head -c 300M /dev/zero > {folder}/large-$$")
        assert result.exit_code, (folder, result)


async def _check_memory(box: Box) -> None:
    """Check that there is memory for a command and for live Python, whose variables are there."""
    assert (await box.exec("echo alive")).stdout == b"alive\n"
    result = await box.run_code("data = b'x' * (30 << 20); print(len(data), kept)")
    assert (result.exit_code, result.output) == (0, f"{30 * MIB} 41\n"), result


@check_target
async def full_temporary_folders_do_not_end_the_box(target: BoxTarget) -> None:
    async with target.box(limits=_MEMORY) as box:
        await box.run_code("kept = 41")
        checkpoint = await box.checkpoint()
        (fork,) = await box.fork(1)
        await _fill(box)
        await _check_memory(box)
        await box.restore(checkpoint)
        await _check_memory(box)
        await _fill(fork)
        await _check_memory(fork)
        await _check_memory(box)
        await fork.close()


@check_target
async def forks_of_a_box_with_full_temporary_folders_live(target: BoxTarget) -> None:
    async with target.box(limits=_MEMORY) as box:
        await box.run_code("kept = 41")
        await _fill(box)
        forks = await box.fork(3)
        for each in (*forks, box):
            await _check_memory(each)
        for each in forks:
            await each.close()


@check_target
async def written_bytes_hold_for_all_commands_together(target: BoxTarget) -> None:
    async with target.box(limits=_WRITTEN) as box:
        for number in range(2):
            result = await box.exec(f"head -c 8M /dev/zero > part{number}")
            assert (result.exit_code, result.limit) == (0, None), result
        for number in range(3):
            result = await box.exec(_PIECES.format(name=f"more{number}"))
            assert (result.exit_code, result.limit) == (137, "written_bytes"), result
            assert b"written_bytes" in result.stderr, result
        data = await box.files.read("part0", limit_bytes=8 * MIB)
        assert data == bytes(8 * MIB)


@check_target
async def written_bytes_hold_for_files_that_are_written(target: BoxTarget) -> None:
    async with target.box(limits=_WRITTEN) as box:
        await box.files.write("first", bytes(12 * MIB))
        with raises(OSError, text="written_bytes") as caught:
            for number in range(50):
                await box.files.write(f"next{number}", bytes(12 * MIB))
        assert isinstance(caught.error, OSError)
        assert caught.error.errno == errno.EDQUOT, caught.error


@check_target
async def written_bytes_hold_for_processes_that_are_left(target: BoxTarget) -> None:
    async with target.box(limits=_WRITTEN) as box:
        text = _PIECES.format(name="left")
        await box.exec(f'{SETSID} sh -c "{text}" > /dev/null 2>&1 &')
        for _ in range(3000):
            if await box.files.exists("left") and not await box.commands():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("what was left goes on writing")


@check_target
async def written_bytes_hold_for_a_shell(target: BoxTarget) -> None:
    async with target.box(limits=_WRITTEN) as box, box.shell(program="sh") as shell:
        result = await shell.run("head -c 8M /dev/zero > part")
        assert (result.exit_code, result.limit) == (0, None), result
        for number in range(2):
            result = await shell.run(_PIECES.format(name=f"more{number}"))
            assert (result.exit_code, result.limit) == (137, "written_bytes"), result


@check_target
async def files_hold_for_all_commands_together(target: BoxTarget) -> None:
    async with target.box(limits=_FILES) as box:
        result = await box.exec("for n in $(seq 150); do : > few$n; done")
        assert (result.exit_code, result.limit) == (0, None), result
        for name in ("more", "again"):
            result = await box.exec(f"n=0; while :; do n=$((n + 1)); : > {name}$n; done")
            assert (result.exit_code, result.limit) == (137, "files"), result
        for entry in await box.files.list():
            await box.files.remove(entry.name)
        result = await box.exec("for n in $(seq 50); do : > new$n; done")
        assert (result.exit_code, result.limit) == (0, None), result


@check_target
async def each_fork_has_written_bytes_of_its_own(target: BoxTarget) -> None:
    async with target.box(limits=_WRITTEN) as box:
        await box.exec("head -c 12M /dev/zero > own")
        forks = await box.fork(2)
        for fork in forks:
            result = await fork.exec("head -c 6M /dev/zero > more")
            assert (result.exit_code, result.limit) == (0, None), result
            result = await fork.exec(_PIECES.format(name="too-much"))
            assert (result.exit_code, result.limit) == (137, "written_bytes"), result
            await fork.close()
        result = await box.exec("head -c 2M /dev/zero > little")
        assert (result.exit_code, result.limit) == (0, None), result
