"""How commands end: time limits, cancellations, and the processes that they leave."""

from __future__ import annotations

import asyncio

from ...box.base import Box
from ...runtime.box_orders import CommandProcess
from .registry import check_box

# `setsid`, which not every image has.
SETSID = "python3 -c 'import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])'"
# Appends to a file while it runs.
BEAT = "while :; do echo >> {name}; sleep 0.02; done"


async def size_of(box: Box, name: str) -> int:
    """Return the size of a file in the box."""
    return (await box.files.stat(name)).size


async def wait_for_file(box: Box, name: str) -> None:
    """Wait until the file exists."""
    for _ in range(3000):
        if await box.files.exists(name):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{name} was not made in a minute")


async def running_commands(box: Box) -> list[CommandProcess]:
    """Wait until a command runs, and return the processes of commands."""
    for _ in range(3000):
        if found := await box.commands():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("no command ran in a minute")


async def wait_for_no_commands(box: Box) -> None:
    """Wait until nothing is left of commands that were killed."""
    for _ in range(3000):
        if not await box.commands():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("a command is still there")


async def check_beats(box: Box, name: str) -> None:
    """Check that the program that appends to the file runs."""
    before = await size_of(box, name)
    for _ in range(3000):
        if await size_of(box, name) != before:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"what writes {name} did not run for a minute")


async def check_silent(box: Box, name: str) -> None:
    """Check that the program that appended to the file has ended."""
    before = await size_of(box, name)
    await asyncio.sleep(0.3)  # a program that runs writes more than ten times
    assert await size_of(box, name) == before, f"what writes {name} still runs"


@check_box
async def a_time_limit_keeps_the_output(box: Box) -> None:
    result = await box.exec("echo so far; echo wrong >&2; sleep 600", timeout=0.5)
    assert (result.exit_code, result.timed_out) == (124, True), result
    assert (result.stdout, result.stderr) == (b"so far\n", b"wrong\n"), result


@check_box
async def a_time_limit_kills_background_children(box: Box) -> None:
    text = f"({BEAT.format(name='child')}) & trap '' TERM INT HUP; {BEAT.format(name='own')}"
    result = await box.exec(text, timeout=1)
    assert result.timed_out, result
    await check_silent(box, "child")
    await check_silent(box, "own")
    await wait_for_no_commands(box)


@check_box
async def a_command_ends_before_its_time_limit(box: Box) -> None:
    result = await box.exec(["true"], timeout=600)
    assert (result.exit_code, result.timed_out) == (0, False), result
    own = await box.exec("exit 124", timeout=None)
    assert (own.exit_code, own.timed_out) == (124, False), own


@check_box
async def a_cancelled_command_is_killed(box: Box) -> None:
    running = asyncio.ensure_future(box.exec(f"({BEAT.format(name='child')}) & sleep 600"))
    await wait_for_file(box, "child")
    running.cancel()
    try:
        await running
    except asyncio.CancelledError:
        pass
    else:
        raise AssertionError("the cancelled task has returned")
    await check_silent(box, "child")
    await wait_for_no_commands(box)


@check_box
async def a_background_child_with_the_pipe_does_not_hold_the_call(box: Box) -> None:
    result = await box.exec(f"echo out; ({BEAT.format(name='child')}) &")
    assert (result.exit_code, result.stdout) == (0, b"out\n"), result
    await wait_for_file(box, "child")
    await check_beats(box, "child")
    assert await box.commands() != []


@check_box
async def a_detached_child_outlives_the_call_and_its_limit(box: Box) -> None:
    text = f"{SETSID} sh -c '{BEAT.format(name='child')}' >/dev/null 2>&1 &"
    await box.exec(f"{text} while ! test -e child; do sleep 0.01; done")
    await box.exec("sleep 600", timeout=0.2)
    await check_beats(box, "child")
    result = await box.exec(f"{text.replace('child', 'other')} sleep 600", timeout=1)
    assert result.timed_out, result
    await check_beats(box, "child")
    await check_beats(box, "other")


@check_box
async def commands_name_what_runs(box: Box) -> None:
    await wait_for_no_commands(box)
    running = asyncio.ensure_future(box.exec(["sleep", "612"]))
    found = await running_commands(box)
    assert [each.text for each in found] == ["sleep 612"], found
    running.cancel()
    await asyncio.wait([running])
    await wait_for_no_commands(box)


@check_box
async def commands_survive_a_block_of_python(box: Box) -> None:
    running = asyncio.ensure_future(box.exec(BEAT.format(name="own"), timeout=600))
    await wait_for_file(box, "own")
    assert (await box.run_code("1 + 1")).output == "2\n"
    await check_beats(box, "own")
    running.cancel()
    await asyncio.wait([running])


@check_box
async def commands_see_and_signal_each_other(box: Box) -> None:
    pid = int((await box.exec("sleep 613 >/dev/null 2>&1 & echo $!")).stdout)
    shown = await box.exec(f"cat /proc/{pid}/cmdline && kill -0 {pid}")
    assert (shown.exit_code, shown.stdout) == (0, b"sleep\x00613\x00"), shown
    assert (await box.exec(f"kill {pid}")).exit_code == 0
    await wait_for_no_commands(box)
