"""Commands of a box attack its first process, which must not be reached, stopped or filled."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cellblock import SandboxSessionServer
from cellblock.runtime import protocol
from cellblock.runtime.box_orders import (
    BoxAnswer,
    BoxOrder,
    EndCommands,
    HoldOutput,
    ListCommands,
    ListFolder,
    ReadFile,
    RunCommand,
    SignalCommand,
)
from cellblock.runtime.cell.box import launcher
from cellblock.runtime.cell.box.confined_fork import Confined, Home
from cellblock.runtime.cell.box.frame_link import FrameLink
from cellblock.runtime.cell.box.launcher_process import (
    ENDED,
    ORDER,
    PROGRAM_FAILED,
    REPORT,
    STARTED,
    LaunchReport,
)
from cellblock.runtime.cell.box.service import BoxService
from cellblock.runtime.cell.poll_loop import PollLoop
from cellblock.runtime.linux import process_tree, syscalls
from cellblock.runtime.packets import decode_fields, encode_packet
from tests.executors.session.box_client import BoxClient
from tests.executors.session.live_session import open_session, run_async
from tests.executors.session.test_box_files import written

pytestmark = pytest.mark.depends_on_user

MIB = 1 << 20
STOP_OTHERS = (
    "sh",
    "-c",
    "for n in $(seq 1 99); do [ $n = $$ ] || kill -STOP $n; done 2>/dev/null; true",
)

# Tries to get at process `pid`, and prints what succeeds.
PROBE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def probe(pid):
    for name in ("mem", "environ", "maps", "stack"):
        try:
            with open(f"/proc/{pid}/{name}", "rb", 0) as file:
                if name == "mem":
                    file.seek(int(open(f"/proc/{pid}/maps").read().split("-")[0], 16))
                file.read(16) and print("read", name)
        except OSError: pass
    for name in ("fd", "root", "cwd"):
        try:
            os.listdir(f"/proc/{pid}/{name}")
            print("list", name)
        except OSError: pass
    if libc.ptrace(16, pid, 0, 0) == 0:
        print("ptrace")
    if libc.syscall(438, os.pidfd_open(pid), 0, 0) >= 0:
        print("pidfd_getfd")
"""
OWN_CHILD = """
if (child := os.fork()) == 0:
    import signal; signal.pause()
probe(child)
os.kill(child, 9)
"""
ALL_OTHERS = """
for pid in range(1, 300):
    try:
        os.kill(pid, 0)
    except ProcessLookupError: continue
    except PermissionError: pass
    if pid != os.getpid(): probe(pid)
"""


def assert_works(box: BoxClient) -> None:
    """Assert that commands, files and blocks are as they should be."""
    assert box.output_of("echo out") == "out"
    assert box.ask(ListFolder, ".").errno is None
    assert box.live.run_ok("kept") == "41"


def test_a_command_has_no_descriptor_of_ours(box: BoxClient) -> None:
    expected = ["0", "1", "2", "3"]  # the last one is the folder itself
    for _ in range(2):  # the first one is a fork, others have waited
        assert box.output_of("exec ls /proc/self/fd").split() == expected
    large = "x" * 100_000  # too much for the process that waits
    assert box.output_of("exec ls /proc/self/fd", env=(("LARGE", large),)).split() == expected


def test_a_command_cannot_look_into_our_processes(box: BoxClient) -> None:
    """They are the first process, the one that waits, and those that work on files."""
    box.live.run_ok("kept = 41")
    assert box.ask(ListFolder, ".").errno is None
    inside = box.run("python3", "-c", PROBE + OWN_CHILD).stdout.decode().split("\n")
    assert {"read mem", "list fd"} <= {*inside}, "the attack does not work where it could"
    # The session's process and its checkpoints run the code of the same user.
    code = "import os; print(os.getpid())"
    session = box.live.run_ok(code)
    others = ALL_OTHERS.replace("pid != os.getpid()", f"pid not in (os.getpid(), {session})")
    assert box.run("python3", "-c", PROBE + others).stdout.decode() == ""
    assert_works(box)


def test_signals_to_everybody_do_not_end_the_box(shared: SandboxSessionServer) -> None:
    """Commands can signal the live Python, which is restarted then, and what works for the box."""
    with open_session(shared, timeout=2) as live:
        box = BoxClient(live)
        box.ask(ListFolder, ".")
        box.shell("kill -9 -1; kill -9 0")
        for number in ("KILL", "STOP"):
            box.shell(f"for n in $(seq 1 99); do [ $n = $$ ] || kill -{number} $n; done")
            assert box.ask(ListFolder, ".").errno is None
            assert box.output_of("echo out") == "out"
            live.run("1")  # it is restarted
            live.run_ok("kept = 41")
            assert_works(box)


def test_a_stopped_process_that_works_on_files_goes_on(shared: SandboxSessionServer) -> None:
    """Also in the middle of a file, when nothing is sent to it any more."""
    with open_session(shared, timeout=2) as live:
        box = BoxClient(live)

        async def data() -> AsyncIterator[bytes]:
            yield b"one"
            assert (await box.start(*STOP_OTHERS)).answer.exit == 0
            yield b"two"
            assert (await box.start(*STOP_OTHERS)).answer.exit == 0

        assert run_async(written(box, "file", data(), None)) == BoxAnswer()
        assert (live.folder / "file").read_bytes() == b"onetwo"


def test_a_command_that_stops_what_reports_its_end(shared: SandboxSessionServer) -> None:
    with open_session(shared, timeout=2) as live:
        box = BoxClient(live)
        for before in ("", "exec >&- 2>&-; ", "sleep 100 & "):  # no output, or one without an end
            done = box.shell(f"{before}sleep 0.3; {STOP_OTHERS[-1]}; exit 3", seconds=20)
            assert (done.answer.exit, done.answer.is_timed_out) == (3, False)
        assert box.ask(EndCommands) == BoxAnswer()


def test_a_signal_that_does_not_exist_is_an_error(box: BoxClient) -> None:
    async def check() -> None:
        running, run = await box.begin("sleep", "100", kind=protocol.BOX_STARTED)
        for invalid in (-1, 65, 1 << 40):
            answer, _ = await box.connection.ask_box(SignalCommand(box.number, run, invalid))
            assert answer.errno == errno.EINVAL
        running.cancel()
        await asyncio.wait([running])

    run_async(check())


def no_confinement(_user: str) -> Confined:
    return Confined()


class ServiceHere:
    """This process carries out orders as the first process of a cell does."""

    def __init__(self, order: BoxOrder) -> None:
        self.loop, (ours, theirs) = PollLoop(), socket.socketpair()
        self.service = BoxService(self.loop, theirs, Home("/", {}, no_confinement), lambda: None)
        self.replies = list[protocol.Frame]()
        self.client = FrameLink(self.loop, ours, self.replies.append, lambda: None)
        self.client.send(protocol.encode(protocol.BOX_REQUEST, 1, encode_packet(order)))

    def answer(self) -> BoxAnswer:
        """Return the answer to the order."""
        while not self.replies or self.replies[-1].kind != protocol.BOX_REPLY:
            self.loop.run_once(self.service.next_deadline())
            self.service.on_timer(time.monotonic())
        self.service.close()
        self.client.close()
        return decode_fields(self.replies[-1], BoxAnswer)


def test_what_has_ended_is_not_left() -> None:
    """Even if nobody has reaped it yet."""
    others = tuple(process_tree.children(os.getpid()))
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ServiceHere(ListCommands(1, others)).answer().processes == ()
    os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (LaunchReport(STARTED, 1, -1), {"errno": errno.EIO}),
        (LaunchReport(STARTED, 1, 1), {"errno": errno.EIO}),
        (LaunchReport(STARTED, 1, os.getppid()), {"errno": errno.EIO}),
        (LaunchReport(PROGRAM_FAILED, 1, 1 << 40), {"errno": errno.EIO}),
        (LaunchReport(ENDED, 0, 0, 0x7F), {"exit": 137}),
        (LaunchReport(ENDED, 0, 0, 0, float("nan")), {"exit": 137}),
    ],
)
def test_a_forged_report_ends_what_sends_it(
    report: LaunchReport, expected: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that has taken over the process that starts commands sends anything."""

    def forge(link: socket.socket, _folder: str, _confined: Confined) -> None:
        link.recv(ORDER.size)
        forged = report
        if report.kind == ENDED:
            pid = os.posix_spawn("/bin/true", ["true"], {})
            link.send(REPORT.pack(*LaunchReport(STARTED, 1, pid)))
            os.waitpid(pid, 0)
            forged = report._replace(pid=pid)
        link.send(REPORT.pack(*forged))
        link.recv(ORDER.size)

    monkeypatch.setattr(launcher, "serve_launches", forge)
    # Unlike the first process of a cell, this one has threads: their locks would stay locked.
    monkeypatch.setattr(syscalls, "fork_without_hooks", os.fork)
    before = {*process_tree.children(os.getpid())}
    answer = ServiceHere(RunCommand(1, ("true",))).answer()
    assert expected.items() <= answer._asdict().items()
    (launcher_pid,) = {*process_tree.children(os.getpid())} - before
    _, status = os.waitpid(launcher_pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def test_what_is_left_is_killed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not again for each process that ends."""
    killed = list[int]()
    monkeypatch.setattr(process_tree, "kill_descendants", killed.append)
    others = tuple(process_tree.children(os.getpid()))
    pids = [os.posix_spawn("/bin/sleep", ["sleep", "100"], {}) for _ in range(10)]
    here = ServiceHere(EndCommands(1, others))
    while not killed:
        here.loop.run_once(here.service.next_deadline())
    for pid in pids:
        here.service.on_exit(*os.wait4(pid, 0))
    assert sorted(killed) == sorted(pids)
    assert here.answer() == BoxAnswer()


def peak_bytes(box: BoxClient) -> dict[int, int]:
    """Return the most memory that each process of the server, and itself, has had."""
    found = dict[int, int]()
    for pid in (box.connection.pid, *process_tree.descendants(box.connection.pid)):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                found[pid] = int(line.split()[1]) * 1024
    return found


def growth(box: BoxClient, before: dict[int, int]) -> dict[int, int]:
    """Return by how much `peak_bytes` has grown for each process."""
    after = peak_bytes(box)
    return {pid: after[pid] - size for pid, size in before.items() if pid in after}


def test_a_gigabyte_of_output_takes_no_memory(box: BoxClient) -> None:
    box.run("true")
    before = peak_bytes(box)
    done = box.run("head", "-c", str(1 << 30), "/dev/zero", output_bytes=MIB)
    assert (len(done.stdout), done.answer.is_truncated, done.answer.exit) == (MIB, True, 0)
    grown = growth(box, before)
    assert max(grown.values()) < 16 * MIB, grown


@pytest.mark.slow
def test_a_command_that_nobody_reads_fills_nothing(box: BoxClient) -> None:
    """Its output is held, and waits in its pipe."""

    async def check() -> None:
        before, text = peak_bytes(box), "sleep 0.2; exec cat /dev/zero"
        endless, run = await box.begin("sh", "-c", text, kind=protocol.BOX_STARTED)
        await box.connection.ask_box(HoldOutput(box.number, run, True))
        for _ in range(20):
            assert (await box.start("head", "-c", "3000000", "/dev/zero")).answer.exit == 0
        grown = growth(box, before)
        endless.cancel()
        await asyncio.wait([endless])
        assert max(grown.values()) < 64 * MIB, grown

    run_async(check())


def test_a_fork_bomb_ends_with_its_command(box: BoxClient) -> None:
    box.live.run_ok("kept = 41")
    done = box.shell("f() { f | f & }; f; sleep 100", seconds=0.5)
    assert done.answer.exit in (2, 124)  # the shell itself may be unable to fork
    assert box.ask(EndCommands) == BoxAnswer()
    assert_works(box)


def test_links_out_of_the_box_lead_nowhere(box: BoxClient, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    box.output_of(f"ln -s {secret} link; ln -s / root")
    for path in ("link", f"root{secret}", str(secret), f"../..{secret}"):
        answer, data = box.ask_with_data(ReadFile(box.number, path))
        assert (answer.errno, data) == (errno.ENOENT, b"")
