"""A box and the live Python in the same cell: neither ends what belongs to the other."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from cellblock import BackendError, BackendLost, CodeBlock, ExecutorStopped, SandboxSessionServer
from cellblock.runtime.box_orders import BoxAnswer, EndCommands, ListCommands
from cellblock.runtime.linux import process_tree
from cellblock.testing.liveness import wait_until
from tests.executors.session.box_client import BoxClient, CommandRun
from tests.executors.session.live_session import LiveSession, forked, open_session, run_async

pytestmark = pytest.mark.depends_on_user

LEAVE_TWO = """
import subprocess
_ = subprocess.Popen(['sleep', '50'])
_ = subprocess.run('sleep 51 & exit', shell=True)
"""
FORK_AND_EXIT = f"{LEAVE_TWO}\nimport os; os._exit(3)"


async def forever() -> AsyncIterator[bytes]:
    """Never yield."""
    await asyncio.Event().wait()
    yield b""


async def started(box: BoxClient, text: str) -> asyncio.Task[CommandRun]:
    """Start a text of the shell whose input does not end, and wait for its first output."""
    return (await box.begin("sh", "-c", text, data=forever()))[0]


async def run_block(live: LiveSession, code: str) -> None:
    await live.executor.execute_code_blocks([CodeBlock(code, "python")])


# blocks


@pytest.mark.parametrize(
    "code",
    ["x = 1", "import os; os.abort()", "while True: pass", LEAVE_TWO, FORK_AND_EXIT],
)
def test_a_block_ends_its_own_processes_and_no_commands(
    shared: SandboxSessionServer, code: str
) -> None:
    with open_session(shared, timeout=2) as live:
        box = BoxClient(live)

        async def check() -> None:
            await box.start("sh", "-c", "setsid sleep 60 & sleep 61 & exit")
            shell = "sh -c sleep 62 & sleep 63 & echo; wait"
            expected = [shell, *(f"sleep {number}" for number in range(60, 64))]
            running = await started(box, "sleep 62 & sleep 63 & echo; wait")
            while len(set(await box.listed())) < len(expected):  # the shell has forked only
                await asyncio.sleep(0.01)
            await run_block(live, code)
            assert await box.listed() == expected
            assert await box.connection.ask_box(EndCommands(box.number)) == (BoxAnswer(), b"")
            assert (await running).answer.exit == 137

        live.run_ok("kept = 41")
        run_async(check())
        assert live.run_ok("kept") == "41"


def test_a_command_that_has_no_process_yet_is_ended(box: BoxClient) -> None:
    async def check() -> None:
        for _ in range(5):
            running, ended = await asyncio.gather(
                box.start("sleep", "600"), box.connection.ask_box(EndCommands(box.number))
            )
            assert ended == (BoxAnswer(), b"")
            assert running.answer.exit == 137

    run_async(check())


def test_a_command_that_starts_while_others_are_ended_is_not_ended(box: BoxClient) -> None:
    async def check() -> None:
        for _ in range(5):
            running = await started(box, "sleep 62 & echo; wait")
            ended, later = await asyncio.gather(
                box.connection.ask_box(EndCommands(box.number)),
                box.start("sh", "-c", "sleep 0.1; echo later"),
            )
            assert ended == (BoxAnswer(), b"")
            assert (await running).answer.exit == 137
            assert (later.answer.exit, later.stdout) == (0, b"later\n")

    run_async(check())


def test_a_block_ends_what_earlier_ones_have_left(box: BoxClient) -> None:
    """Also before there was a box, and what is left of a process that has ended."""
    box.live.run_ok(LEAVE_TWO)
    box.shell("true")
    box.live.run_ok(LEAVE_TWO)
    assert box.left() == []
    box.live.run(FORK_AND_EXIT)
    assert box.left() == []


def test_a_restored_session_has_no_descriptor_of_the_box(box: BoxClient) -> None:
    show = "import os; print(sorted(os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in "
    show += "map(int, os.listdir('/proc/self/fd')) if os.path.exists(f'/proc/self/fd/{n}')))"

    async def crash() -> None:
        running = await started(box, "echo; (sleep 63 &); cat")
        await run_block(box.live, "import os; os._exit(3)")
        running.cancel()
        await asyncio.wait([running])

    before = box.live.run_ok(show)
    box.live.run("import threading; threading.Thread(target=lambda: None).start()")
    run_async(crash())
    assert box.live.run_ok(show) == before


def test_checkpoints_leave_commands_alone_and_are_none(box: BoxClient) -> None:
    box.live.run_ok("x = 1")
    box.shell("sleep 60 & exit")
    checkpoint = box.live.checkpoint()
    box.live.run_ok("x = 2")
    box.live.restore(checkpoint)
    assert box.live.run_ok("x") == "1"
    assert box.left() == ["sleep 60"]
    assert box.ask(EndCommands) == BoxAnswer()
    box.live.restore(checkpoint)
    assert box.live.run_ok("x") == "1"


def test_a_branch_has_a_box_of_its_own(box: BoxClient) -> None:
    box.output_of("echo parent >file; echo parent >/tmp/file")
    box.shell("sleep 60 & exit")
    with forked(box.live) as (branch,):
        other = BoxClient(branch)
        assert other.output_of("cat file /tmp/file") == "parent\nparent"
        other.output_of("echo branch >file; echo branch >/tmp/file")
        other.shell("sleep 70 & exit")
        assert box.output_of("cat file /tmp/file") == "parent\nparent"
        assert other.left() == ["sleep 70"]
        assert box.left() == ["sleep 60"]
        for each in (box, other):
            assert each.ask(EndCommands) == BoxAnswer()
        assert (branch.run_ok("print(1)"), box.live.run_ok("print(2)")) == ("1", "2")


# the end


def test_what_is_open_is_answered_when_the_session_is_closed(box: BoxClient) -> None:
    async def check() -> None:
        running = [await started(box, "echo; cat") for _ in range(3)]
        await box.live.executor.stop()
        found = await asyncio.gather(*running, return_exceptions=True)
        assert {type(error) for error in found} == {ExecutorStopped}

    run_async(check())


def test_what_is_open_is_answered_when_the_cell_ends(box: BoxClient) -> None:
    connection, number = box.connection, box.number
    box.shell("sleep 99 & exit")

    async def check() -> None:
        running = await started(box, "echo; cat")
        os.kill(parent_of(box, "sleep 99"), signal.SIGKILL)
        with pytest.raises(BackendLost):
            await running
        with pytest.raises(BackendError):
            await connection.ask_box(ListCommands(number))

    run_async(check())


def parent_of(box: BoxClient, text: str) -> int:
    """Return the parent of the process with the command line `text`."""
    pids = process_tree.descendants(box.connection.pid)
    (found,) = (pid for pid in pids if process_tree.command_line(pid) == text)
    return process_tree.parent_of(found)


def test_commands_end_with_the_session(box: BoxClient) -> None:
    box.shell("setsid sleep 98 & exit")
    connection = box.connection
    run_async(box.live.executor.stop())

    def lines() -> list[str]:
        return [*map(process_tree.command_line, process_tree.descendants(connection.pid))]

    run_async(wait_until(lambda: "sleep 98" not in lines(), "the command ends"))
