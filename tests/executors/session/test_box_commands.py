"""Commands in the box of a session: what the contract of boxes does not say.

The rest of it is in `cellblock.testing.boxes`, which `tests/box/test_conformance.py` runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from cellblock import CancellationToken
from cellblock.runtime.box_orders import (
    BoxAnswer,
    EndCommands,
    SignalCommand,
)
from cellblock.runtime.linux import process_tree
from cellblock.testing.liveness import wait_until
from tests.executors.session.box_client import BoxClient, pieces
from tests.executors.session.live_session import run_async

pytestmark = pytest.mark.depends_on_user

MIB = 1 << 20


@pytest.fixture
def box(module_box: BoxClient) -> Iterator[BoxClient]:
    """A box that has no processes of earlier tests."""
    yield module_box
    module_box.ask(EndCommands)


# the start


def test_the_memory_of_a_command_is_its_own(box: BoxClient) -> None:
    assert box.run("true").answer.peak == 0  # not known: less than that of what starts it
    peak = box.run("python3", "-c", f"x = b'x' * {100 * MIB}").answer.peak
    assert peak is not None
    assert 100 * MIB < peak < 200 * MIB


def test_a_missing_program_is_exit_code_127(box: BoxClient) -> None:
    for name in ("no-such-program", "/no/such/program", "./none", "/etc/passwd/x"):
        done = box.run(name)
        assert (done.answer.exit, done.pid) == (127, 0)
        assert done.stderr.decode() == f"{name}: not found\n"
    assert box.run("no-such-program", is_merged=True).stdout == b"no-such-program: not found\n"


def test_what_no_program_can_get_is_an_error(box: BoxClient) -> None:
    assert box.run("true", cwd="a\0b").answer.errno == errno.EINVAL
    for variable in (("A", "x\0y"), ("A=B", "x")):
        assert box.run("true", env=(variable,)).answer.errno == errno.EINVAL
    assert box.run("echo", "a\0b").answer.errno == errno.EINVAL
    assert box.run().answer.errno == errno.EINVAL


def test_variables_are_added_to_those_of_blocks(box: BoxClient) -> None:
    os.environ["OF_THE_HOST"] = "x"
    try:
        found = box.run("env", env=(("A", "ü"), ("HOME", "/tmp"))).stdout.decode().splitlines()
    finally:
        del os.environ["OF_THE_HOST"]
    ours = box.live.run_ok("import os\nfor pair in os.environ.items(): print('='.join(pair))")
    expected = {line for line in ours.splitlines() if not line.startswith(("HOME=", "PWD="))}
    assert expected <= {*found}
    assert {"A=ü", "HOME=/tmp"} <= {*found}
    assert not [line for line in found if "OF_THE_HOST" in line]


def test_a_program_is_found_by_the_path_of_its_command(box: BoxClient) -> None:
    folder = box.output_of(
        "mkdir -p bin; printf '#!/bin/sh\\necho mine' >bin/tool; chmod +x bin/tool; pwd"
    )
    assert box.run("tool", env=(("PATH", f"/no:{folder}/bin:/usr/bin:/bin"),)).stdout == b"mine\n"
    assert box.run("tool").answer.exit == 127


def test_only_the_user_of_the_box_can_run_commands(box: BoxClient) -> None:
    own = box.output_of("id -u")
    assert box.output_of("id -u", user=own) == own
    assert box.output_of("id -u", user="cell") == own
    for user in ("root", "nobody-here", "4711"):
        answer = box.run("true", user=user).answer
        assert (answer.errno, answer.path) == (errno.EPERM, None)
        assert answer.error is not None
        assert user in answer.error


# input


def test_input_waits_for_the_command(box: BoxClient) -> None:
    """A command that reads late: few pieces are taken before."""
    asked = list[int]()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            asked.append(1)
            yield bytes(MIB)

    done = box.run("sh", "-c", "sleep 0.3; head -c 3000000 | wc -c", data=endless())
    assert done.stdout.split() == [b"3000000"]
    assert len(asked) < 20


def test_a_command_need_not_read_its_input(box: BoxClient) -> None:
    for text in ("exec 0<&-; echo out", "head -c 1 >/dev/null; echo out", "echo out"):
        assert box.shell(text, data=pieces([bytes(MIB)] * 5)).stdout == b"out\n"


def test_an_error_of_what_makes_the_input_is_raised_and_ends_the_command(box: BoxClient) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise LookupError("nothing more")

    with pytest.raises(LookupError, match="nothing more"):
        box.run("cat", data=broken())
    assert box.left() == []


# the end


def test_a_time_limit_keeps_the_output_and_kills_the_session_of_processes(box: BoxClient) -> None:
    text = "echo before; sleep 100 & (set -m; sleep 101 & sleep 102) & setsid sleep 103 & sleep 104"
    done = box.shell(text, seconds=0.5)
    assert (done.stdout, done.answer.exit, done.answer.is_timed_out) == (b"before\n", 124, True)
    assert box.left() == ["sleep 103"]


def test_cancelling_kills_the_command(box: BoxClient) -> None:
    async def check() -> None:
        token, text = CancellationToken(), "sleep 100 & echo; sleep 100"
        running, _ = await box.begin("sh", "-c", text, token=token)
        token.cancel()
        assert (await running).answer.exit == 137
        running, _ = await box.begin("sh", "-c", text)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run_async(check())
    assert box.left() == []


def test_a_command_ends_though_a_child_holds_its_pipe(box: BoxClient) -> None:
    done = box.shell("(sleep 1; echo late; echo alive >late) & echo out")
    assert (done.stdout, done.answer.exit) == (b"out\n", 0)
    assert done.answer.wall is not None
    assert done.answer.wall < 1
    # Its output is read all the same: otherwise it would end by SIGPIPE.
    run_async(wait_until((box.live.folder / "late").exists, "the child goes on"))


def test_output_of_a_child_is_waited_for_shortly(box: BoxClient) -> None:
    assert box.shell("(sleep 0.03; echo late) & echo out").stdout == b"out\nlate\n"


def test_a_signal_goes_to_the_process_group(box: BoxClient) -> None:
    async def check() -> None:
        text = "trap 'echo got; exit 7' INT; sleep 100 & echo; wait"
        running, run = await box.begin("sh", "-c", text)
        answer, _ = await box.connection.ask_box(SignalCommand(box.number, run, 2))
        assert answer == BoxAnswer()
        done = await running
        assert (done.stdout, done.answer.exit) == (b"\ngot\n", 7)
        for ended in (run, 4711):
            answer, _ = await box.connection.ask_box(SignalCommand(box.number, ended, 9))
            assert answer.errno == errno.ESRCH

    run_async(check())


def test_commands_are_listed_and_ended(box: BoxClient) -> None:
    box.shell("setsid sleep 100 & sleep 101 & (sleep 102 &) ; exit")
    assert box.left() == ["sleep 100", "sleep 101", "sleep 102"]
    assert box.ask(EndCommands) == BoxAnswer()
    assert box.left() == []


def test_two_hundred_commands_leave_nothing_behind(box: BoxClient) -> None:
    box.shell("cat", data=pieces([b"x"]))
    before = descriptors_of_all_processes(box)

    def nothing_is_left() -> bool:  # meanwhile, the server may have begun or ended a spare process
        return descriptors_of_all_processes(box) < before + 100

    async def check() -> None:
        for _ in range(20):
            done = await asyncio.gather(
                *(box.start("sh", "-c", "cat; exit 5", data=pieces([b"x"])) for _ in range(10))
            )
            assert {(each.stdout, each.answer.exit) for each in done} == {(b"x", 5)}
        await wait_until(nothing_is_left, "nothing is left")

    run_async(check())


def descriptors_of_all_processes(box: BoxClient) -> int:
    """Return how many descriptors the processes of the server have open."""
    count = 0
    for pid in [box.connection.pid, *process_tree.descendants(box.connection.pid)]:
        with contextlib.suppress(OSError):  # it has ended; a plain user cannot look into all
            count += len(os.listdir(f"/proc/{pid}/fd"))
    return count
