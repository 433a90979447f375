"""Commands in the box of a session: how they start, what they read and write, how they end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from cellblock import CancellationToken, SandboxSessionServer
from cellblock.runtime import protocol
from cellblock.runtime.box_orders import (
    BoxAnswer,
    EndCommands,
    HoldOutput,
    ListCommands,
    SignalCommand,
)
from cellblock.runtime.linux import process_tree
from cellblock.testing.liveness import wait_until
from tests.executors.session.box_client import BoxClient, pieces
from tests.executors.session.live_session import open_session, run_async

MIB = 1 << 20


@pytest.fixture(scope="module")
def module_box(
    shared: SandboxSessionServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BoxClient]:
    with open_session(shared, tmp_path_factory.mktemp("work")) as live:
        yield BoxClient(live)


@pytest.fixture
def box(module_box: BoxClient) -> Iterator[BoxClient]:
    """A box that has no processes of earlier tests."""
    yield module_box
    module_box.ask(EndCommands)


# the start


def test_a_command_says_its_output_and_exit_code(box: BoxClient) -> None:
    done = box.shell("echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.answer.exit) == (b"out\n", b"err\n", 3)
    assert done.pid > 1
    assert (done.answer.is_timed_out, done.answer.is_truncated) == (False, False)
    assert done.answer.wall is not None


def test_the_memory_of_a_command_is_its_own(box: BoxClient) -> None:
    assert box.run("true").answer.peak == 0  # not known: less than that of what starts it
    peak = box.run("python3", "-c", f"x = b'x' * {100 * MIB}").answer.peak
    assert peak is not None
    assert 100 * MIB < peak < 200 * MIB


def test_arguments_are_literal(box: BoxClient) -> None:
    words = ["$HOME", "a b", "*", "'\"\\", "ü\udcff", "", "x" * 65_000]
    done = box.run(
        "python3", "-c", "import sys, os; print(*map(os.fsencode, sys.argv[1:]))", *words
    )
    assert done.stdout.decode().strip() == " ".join(str(os.fsencode(word)) for word in words)


def test_a_megabyte_of_arguments_arrives(box: BoxClient) -> None:
    words = ["x" * (64 << 10)] * 16
    done = box.run("sh", "-c", 'printf %s "$@" | wc -c', "sh", *words)
    assert done.stdout.split() == [str(len(words) * len(words[0])).encode()]


def test_more_arguments_than_the_kernel_takes_are_an_error(box: BoxClient) -> None:
    assert box.run("true", "x" * (4 * MIB)).answer.errno == errno.E2BIG


def test_a_missing_program_is_exit_code_127(box: BoxClient) -> None:
    for name in ("no-such-program", "/no/such/program", "./none", "/etc/passwd/x"):
        done = box.run(name)
        assert (done.answer.exit, done.pid) == (127, 0)
        assert done.stderr.decode() == f"{name}: not found\n"
    assert box.run("no-such-program", is_merged=True).stdout == b"no-such-program: not found\n"


def test_a_file_that_is_no_program_is_an_error(box: BoxClient) -> None:
    answer = box.run("/etc/passwd").answer
    assert (answer.errno, answer.path, answer.exit) == (errno.EACCES, "/etc/passwd", None)


def test_a_missing_folder_is_an_error_that_names_it(box: BoxClient) -> None:
    answer = box.run("true", cwd="no/such").answer
    assert answer.errno == errno.ENOENT
    assert answer.error is not None
    assert "no/such" in answer.error
    assert answer.path is not None
    assert answer.path.endswith("no/such")
    assert box.run("true", cwd="/etc/passwd").answer.errno == errno.ENOTDIR


@pytest.mark.parametrize(
    "options", [{"cwd": "a\0b"}, {"env": (("A", "x\0y"),)}, {"env": (("A=B", "x"),)}]
)
def test_what_no_program_can_get_is_an_error(box: BoxClient, options: dict[str, object]) -> None:
    assert box.run("true", **options).answer.errno == errno.EINVAL
    assert box.run("echo", "a\0b").answer.errno == errno.EINVAL
    assert box.run().answer.errno == errno.EINVAL


def test_the_folder_is_the_work_folder_or_relative_to_it(box: BoxClient) -> None:
    folder = box.live.run_ok("import os\nos.makedirs('below', exist_ok=True)\nprint(os.getcwd())")
    assert box.output_of("pwd -P; echo $PWD").split() == [folder] * 2
    assert box.output_of("pwd", cwd="below") == f"{folder}/below"
    assert box.output_of("pwd", cwd="/tmp") == "/tmp"


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


# input and output


def test_input_is_at_its_end_unless_data_is_sent(box: BoxClient) -> None:
    assert box.run("cat").stdout == b""
    data = bytes(range(256)) * 10
    assert box.run("cat", data=pieces([data, b"x"])).stdout == data + b"x"
    assert box.run("cat", data=pieces([])).stdout == b""


def test_fifty_megabytes_of_input_arrive(box: BoxClient) -> None:
    sent = [bytes(range(256)) * (MIB // 256)] * 50
    assert box.run("wc", "-c", data=pieces(sent)).stdout.split() == [b"%d" % (50 * MIB)]


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
    assert box.ask(ListCommands).processes == ()


def test_merged_output_is_in_order(box: BoxClient) -> None:
    text = "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"
    done = box.shell(text, is_merged=True)
    assert done.stderr == b""
    assert done.stdout.split() == [b"%s%d" % (s, i) for i in range(1, 6) for s in (b"o", b"e")]


def test_output_arrives_while_the_command_runs(box: BoxClient) -> None:
    async def check() -> None:
        answered = asyncio.Event()

        async def answer() -> AsyncIterator[bytes]:
            await answered.wait()
            yield b"go\n"

        def on_frame(frame: protocol.Frame) -> None:
            if frame.kind == protocol.STDOUT:
                answered.set()

        done = await box.start(
            "sh", "-c", "echo ask; read x; echo $x", data=answer(), on_frame=on_frame
        )
        assert done.stdout == b"ask\ngo\n"

    run_async(check())


def test_the_head_of_too_much_output_is_kept(box: BoxClient) -> None:
    text = "seq 1 100000; echo err >&2; echo done >flag"
    done = box.shell(text, output_bytes=1000)
    assert len(done.stdout) == 1000
    assert done.stdout.startswith(b"1\n2\n3\n")
    assert done.stderr == b"err\n"
    assert (done.answer.exit, done.answer.is_truncated) == (0, True)
    assert (box.live.folder / "flag").exists()
    exact = box.run("printf", "12345", output_bytes=5)
    assert (exact.stdout, exact.answer.is_truncated) == (b"12345", False)
    assert box.run("printf", "1", output_bytes=0).answer.is_truncated


def test_five_commands_at_once_write_500_kib_each(box: BoxClient) -> None:
    async def check() -> None:
        text = "head -c 512000 /dev/zero; head -c 512000 /dev/zero >&2"
        done = await asyncio.gather(*(box.start("sh", "-c", text) for _ in range(5)))
        for each in done:
            assert (len(each.stdout), len(each.stderr)) == (512000, 512000)

    run_async(check())


def test_held_output_makes_the_command_wait_and_no_other(box: BoxClient) -> None:
    async def check() -> None:
        number = asyncio.get_running_loop().create_future()
        received = list[int]()

        def on_frame(frame: protocol.Frame) -> None:
            if frame.kind == protocol.BOX_STARTED:
                number.set_result(frame.run)
            received.append(len(frame.payload))

        running = asyncio.create_task(
            box.start("sh", "-c", "sleep 0.1; head -c 3000000 /dev/zero", on_frame=on_frame)
        )
        run = await number
        await box.connection.ask_box(HoldOutput(box.number, run, True))
        before = len(received)
        assert (await box.start("head", "-c", "3000000", "/dev/zero")).answer.exit == 0
        assert len(received) == before
        await box.connection.ask_box(HoldOutput(box.number, run, False))
        assert len((await running).stdout) == 3000000

    run_async(check())


# the end


@pytest.mark.parametrize(("number", "code"), [("TERM", 143), ("KILL", 137), ("SEGV", 139)])
def test_a_signal_is_128_and_its_number(box: BoxClient, number: str, code: int) -> None:
    assert box.shell(f"kill -{number} $$").answer.exit == code


def test_a_time_limit_keeps_the_output_and_kills_the_session_of_processes(box: BoxClient) -> None:
    text = "echo before; sleep 100 & (set -m; sleep 101 & sleep 102) & setsid sleep 103 & sleep 104"
    done = box.shell(text, seconds=0.5)
    assert (done.stdout, done.answer.exit, done.answer.is_timed_out) == (b"before\n", 124, True)
    assert left_of(box) == ["sleep 103"]


def left_of(box: BoxClient) -> list[str]:
    return sorted(process.text for process in box.ask(ListCommands).processes or ())


def test_cancelling_kills_the_command(box: BoxClient) -> None:
    async def check() -> None:
        token, started = CancellationToken(), asyncio.Event()

        def on_frame(frame: protocol.Frame) -> None:
            if frame.kind == protocol.STDOUT:
                started.set()

        text = "sleep 100 & echo; sleep 100"
        running = asyncio.create_task(box.start("sh", "-c", text, token=token, on_frame=on_frame))
        await started.wait()
        token.cancel()
        assert (await running).answer.exit == 137
        started.clear()
        running = asyncio.create_task(box.start("sh", "-c", text, on_frame=on_frame))
        await started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run_async(check())
    assert left_of(box) == []


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
        number = asyncio.get_running_loop().create_future()

        def on_frame(frame: protocol.Frame) -> None:
            if frame.kind == protocol.STDOUT and not number.done():
                number.set_result(frame.run)

        text = "trap 'echo got; exit 7' INT; sleep 100 & echo; wait"
        running = asyncio.create_task(box.start("sh", "-c", text, on_frame=on_frame))
        run = await number
        answer, _ = await box.connection.ask_box(SignalCommand(box.number, run, 2))
        assert answer == BoxAnswer()
        done = await running
        assert (done.stdout, done.answer.exit) == (b"\ngot\n", 7)
        for command, signal, wanted in ((run, 9, errno.ESRCH), (4711, 9, errno.ESRCH)):
            answer, _ = await box.connection.ask_box(SignalCommand(box.number, command, signal))
            assert answer.errno == wanted

    run_async(check())


def test_a_command_can_signal_what_an_earlier_one_has_left(box: BoxClient) -> None:
    pid = box.output_of("sleep 100 >/dev/null & echo $!")
    ends = f"while kill -0 {pid} 2>/dev/null; do sleep 0.01; done"
    assert box.output_of(f"kill -0 {pid} && kill {pid} && {ends}; echo done") == "done"
    assert left_of(box) == []


def test_commands_are_listed_and_ended(box: BoxClient) -> None:
    box.shell("setsid sleep 100 & sleep 101 & (sleep 102 &) ; exit")
    assert left_of(box) == ["sleep 100", "sleep 101", "sleep 102"]
    assert box.ask(EndCommands) == BoxAnswer()
    assert left_of(box) == []


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
