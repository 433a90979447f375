"""What live sessions leave behind is nothing, and what hostile code puts into a work folder leads out of nothing."""

# ruff: noqa: E501 - a program a line

from __future__ import annotations

import glob
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from benchmarks.processes import tree
from cellblock import CheckpointError, Limits, SandboxSessionCodeExecutor, SandboxSessionServer
from cellblock.executors.workspace import snapshot
from cellblock.runtime.linux import process_tree
from cellblock.runtime.server.sessions.first_process import House
from cellblock.sandbox import cgroups
from tests.executors.session.live_session import Live, forked, server, session, wait
from tests.sandbox.probes import MARK

ROOT = Path(__file__).parents[3]

T = TypeVar("T")


@pytest.fixture(scope="module")
def shared() -> Iterator[SandboxSessionServer]:
    with server(limits=Limits(memory_bytes=256 << 20, processes=100, checkpoints=6)) as running:
        yield running


def until(holds: Callable[[], bool]) -> bool:
    """Wait for what must come soon; tell whether it has."""
    deadline = time.monotonic() + 8
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def settled(measure: Callable[[], T]) -> T:
    """Give what `measure` gives once that stays the same for a while."""
    deadline, value, since = time.monotonic() + 8, measure(), time.monotonic()
    while time.monotonic() < min(since + 0.4, deadline):
        time.sleep(0.02)
        if (now := measure()) != value:
            value, since = now, time.monotonic()
    return value


def server_pid(running: SandboxSessionServer) -> int:
    """Give the process of a server."""
    connection = running.warm._connection
    assert connection is not None
    return connection.pid


def control_groups(pid: int) -> set[str]:
    """List the control groups of a server and its cells."""
    return {
        folder
        for folder, _, _ in os.walk("/sys/fs/cgroup")
        if re.search(rf"/cellblock-\d+-{pid}-", folder)
    }


BUSY = """
import os, subprocess, threading, time
subprocess.Popen(['sleep', '1000']); subprocess.Popen(['setsid', 'sleep', '1000'], start_new_session=True)
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
open('/tmp/t', 'w').write('t'); open('/dev/shm/s', 'w').write('s'); open('w', 'w').write('w')
"""


def test_nothing_is_left_of_a_server_and_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with server() as running:
        lives = [session(running, keep_processes=True) for _ in range(2)]
        for live in lives:
            live.done("x = 1")
            live.checkpoint()
        branches = lives[0].fork(2) + lives[1].fork(1)
        lives += [*branches, *branches[0].fork(1)]
        for live in lives:
            live.done(BUSY)
        pids = tree(pid := server_pid(running))
        assert len(pids) > 20
        assert control_groups(pid) or not cgroups.find().version
    assert until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    for live in lives:
        live.stop()
    assert list(tmp_path.iterdir()) == []
    assert until(lambda: not control_groups(pid))


@pytest.mark.parametrize("parent_first", [True, False])
def test_nothing_is_left_of_sessions_that_stop_one_by_one(
    parent_first: bool,
    shared: SandboxSessionServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with session(shared) as warm:
        warm.done("1")
    pid = server_pid(shared)
    before = settled(lambda: (len(tree(pid)), len(control_groups(pid))))
    parent = session(shared, keep_processes=True)
    parent.done("x = 1")
    parent.checkpoint()
    lives = [parent, *parent.fork(3)]
    lives += lives[1].fork(1)
    for live in lives:
        live.done(BUSY)
    for live in lives if parent_first else reversed(lives):
        live.stop()
    assert settled(lambda: (len(tree(pid)), len(control_groups(pid)))) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["restore", "checkpoint", "fork", "crash", "cell"])
def test_nothing_grows_with_each(name: str, shared: SandboxSessionServer, tmp_path: Path) -> None:
    pid = server_pid(shared)
    with session(shared, tmp_path) as live:
        live.done("import os; open('f', 'w').write('x' * 1000) and None")
        mark = live.checkpoint()

        def once() -> None:
            match name:
                case "restore":
                    live.restore(mark)
                case "checkpoint":
                    wait(live.executor.drop(live.checkpoint()))
                case "fork":
                    live.fork()[0].stop()
                case "crash":
                    live.run("os._exit(3)")
                case _:
                    live.done("open('f', 'w').write('y') and None")

        def holdings() -> tuple[int, ...]:
            assert isinstance(live.executor, SandboxSessionCodeExecutor)
            scratch = live.executor._scratch
            descriptors = len(os.listdir(f"/proc/{pid}/fd"))
            files = sum(len(folders) + len(files) for _, folders, files in os.walk(scratch or ""))
            return len(tree(pid)), descriptors, files, len(control_groups(pid))

        for _ in range(3):
            once()
        before = settled(holdings)
        for _ in range(12):
            once()
        after = settled(holdings)
        # An ended copy may be waited for by the next one.
        assert all(now <= then + 1 for now, then in zip(after, before, strict=True)), (
            before,
            after,
        )


def test_a_killed_server_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    from cellblock import BackendError, SessionError

    with server() as running:
        live = session(running, keep_processes=True)
        live.done(BUSY)
        pids = tree(server_pid(running))
        os.kill(pids[0], 9)
        assert until(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids[1:]))
        with pytest.raises((BackendError, SessionError)):
            live.run("1")
        live.stop()
    assert [path for path in tmp_path.iterdir() if path.name.startswith("cellblock-")] == []


def test_an_owner_that_dies_leaves_nothing(tmp_path: Path) -> None:
    program = f"""
import os, sys, tempfile
tempfile.tempdir = {str(tmp_path)!r}
sys.path[0:0] = {[str(ROOT / "src"), str(ROOT)]!r}
from tests.executors.session.live_session import server, session
from tests.executors.session.test_leftovers import server_pid
from benchmarks.processes import tree
with server() as running:
    live = session(running, keep_processes=True)
    live.done('1')
    branch = live.fork()[0]
    for one in (live, branch):
        one.done({BUSY!r})
    print(*tree(server_pid(running)), flush=True)
    os.kill(os.getpid(), 9)
"""
    import sys

    with session(None) as probe:
        probe.done("1")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=15
    )
    pids = done.stdout.split()
    assert len(pids) > 5, done.stderr
    assert until(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids))
    assert until(lambda: list(tmp_path.iterdir()) == []), list(tmp_path.iterdir())


# links that lead out of the work folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (file := tmp_path / "out" / "secret").write_text(MARK)
    return file


LINKS = {
    "a link to a file": "os.symlink({file!r}, 'l')",
    "a link to its folder": "os.symlink({folder!r}, 'l')",
    "a link in place of a folder": "os.mkdir('d'); open('d/secret', 'w').write('mine'); os.rename('d', 'e'); os.symlink({folder!r}, 'd')",
    "a link by dots": "os.symlink('../out/secret', 'l')",
    "a link by /proc": "os.symlink('/proc/self/root' + {file!r}, 'l')",
    "a link to a link": "os.symlink({folder!r}, 'a'); os.symlink('a/secret', 'l')",
}


def contents(folder: Path) -> str:
    """Give all text of all files that are in `folder` itself."""
    found = [
        path.read_text() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    ]
    return "\n".join(found)


@pytest.mark.parametrize("name", LINKS)
def test_a_link_never_brings_a_file_of_the_machine_in(name: str, live: Live, secret: Path) -> None:
    live.done("import os\n" + LINKS[name].format(file=str(secret), folder=str(secret.parent)))
    mark = live.checkpoint()
    assert MARK not in contents(mark.snapshot.path)
    read = "for t, d, f in os.walk('.', followlinks=True):\n  for n in f:\n    try: print(open(f'{t}/{n}').read())\n    except OSError: pass"
    with forked(live, 1) as (now,), forked(live, 1, mark) as (then,):
        for branch in (now, then):
            assert MARK not in contents(branch.folder)
            assert MARK not in branch.said(read)
    live.restore(mark)
    assert MARK not in contents(live.folder)
    assert secret.read_text() == MARK


SWAPS = """
import os, time
os.makedirs('d'); open('d/secret', 'w').write('mine'); os.symlink({folder!r}, 'l')
open('f', 'w').write('mine'); os.symlink({file!r}, 'g')
pid = os.fork()
if pid == 0:
    import ctypes
    libc = ctypes.CDLL(None)
    while True:  # exchange: folder and link, file and link
        libc.renameat2(-100, b'd', -100, b'l', 2); libc.renameat2(-100, b'f', -100, b'g', 2)
"""


def test_links_that_are_swapped_in_meanwhile_bring_nothing_in(
    shared: SandboxSessionServer, tmp_path: Path, secret: Path
) -> None:
    """A process of the session swaps links in and out while the folder is copied; the copy is told to go on as often as it can."""
    (tmp_path / "work").mkdir()
    with session(shared, tmp_path / "work", keep_processes=True) as live:
        live.done(SWAPS.format(file=str(secret), folder=str(secret.parent)))
        deadline, copies, refused = time.monotonic() + 4, 0, 0
        while time.monotonic() < deadline:
            target = tmp_path / f"copy-{copies + refused}"
            try:
                snapshot.copy(live.folder, target)
            except OSError:
                refused += 1  # what is no folder, or no file, any more is not opened
            else:
                copies += 1
            assert MARK not in contents(target), (copies, refused)
        assert copies + refused > 20


def test_a_copy_that_follows_links_would_be_caught(tmp_path: Path, secret: Path) -> None:
    """The probe of the tests above does see what a careless copy brings in."""
    import shutil

    (tmp_path / "work").mkdir()
    os.symlink(secret, tmp_path / "work" / "l")
    shutil.copytree(tmp_path / "work", tmp_path / "careless")
    assert MARK in contents(tmp_path / "careless")
    snapshot.copy(tmp_path / "work", tmp_path / "careful")
    assert MARK not in contents(tmp_path / "careful")


def test_restoring_writes_nothing_through_a_link(live: Live, secret: Path) -> None:
    live.done(
        "import os, shutil\nos.mkdir('out'); open('out/secret', 'w').write('mine'); open('f', 'w').write('mine') and None"
    )
    mark = live.checkpoint()
    live.done(
        f"shutil.rmtree('out'); os.symlink({str(secret.parent)!r}, 'out'); os.unlink('f'); os.symlink({str(secret)!r}, 'f')"
    )
    live.restore(mark)
    assert (secret.read_text(), os.listdir(secret.parent)) == (MARK, ["secret"])
    assert live.done("print(open('out/secret').read(), open('f').read())") == "mine mine"


ODD = {
    "a pipe": "os.mkfifo('odd')",
    "a socket": "import socket; s = socket.socket(1); s.bind('odd')",
    "a folder that nobody may enter": "os.mkdir('odd', 0)",
    "a file that nobody may read": "open('odd', 'w').write('x'); os.chmod('odd', 0)",
    "a link in a circle": "os.symlink('odd', 'odd')",
    "a file with a hole": "os.truncate(os.open('odd', 66), 1 << 40)",
    "a name that is no text": "open(b'\\xff\\n', 'w').close()",
    "a deep folder": "p = '.'\nfor _ in range(200):\n  os.mkdir(p := p + '/d')",
    "many files": "for n in range(3000): os.mknod(f'{n}')",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_things_in_a_work_folder_hang_and_end_nothing(name: str, live: Live) -> None:
    from cellblock import CellblockError

    live.done("x = 1; import os; open('plain', 'w').write('plain') and None")
    live.done(ODD[name] + "\nNone")
    try:
        mark = live.checkpoint()
        live.done("os.unlink('plain')")
        live.restore(mark)
        with forked(live) as (branch,):
            assert branch.done("print(x, open('plain').read())") == "1 plain"
    except CellblockError as error:
        assert "odd" in str(error) or "work folder" in str(error), error  # noqa: PT017 - it may also go well
    assert live.done("print(x)") == "1"
    assert glob.glob(f"{live.folder}/plain")


def test_folders_however_deep_are_copied_or_refused(live: Live) -> None:
    live.done("import os\np = '.'\nfor _ in range(100):\n  os.mkdir(p := p + '/d')")
    live.done("open(p + '/bottom', 'w').write('there') and None")
    try:
        [branch] = live.fork()
    except CheckpointError:
        return
    with branch:
        assert branch.done("print(open(p + '/bottom').read())") == "there"


class Views:
    """What a session's house sees of its cell, look by look: the guard's children, the session's, and which have ended."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *looks: tuple[list[int], list[int], set[int]]
    ) -> None:
        self._looks = list(looks)
        self.house = House.__new__(House)
        self.house.pid, self.house.branches = 1, set()
        monkeypatch.setattr(self.house, "_children_of", self._children_of)
        monkeypatch.setattr(process_tree, "is_zombie", self._is_zombie)
        monkeypatch.setattr(process_tree, "children", self._no_children)

    def _is_zombie(self, pid: int) -> bool:
        return pid in self._looks[0][2]

    def _no_children(self, pid: int) -> list[int]:
        return []

    def _children_of(self, pid: int) -> list[int]:
        if pid == 1 and len(self._looks) > 1 and self._begun:
            self._looks.pop(0)
        self._begun = True
        guards, sessions, _ = self._looks[0]
        return guards if pid == 1 else sessions

    _begun = False


def test_what_ended_while_it_was_looked_at_may_have_left_a_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = Views(monkeypatch, ([], [10], {10}), ([11], [10], {10}))
    assert chain.house.strays(2, set()) == [11]


def test_while_the_guard_has_zombies_nobody_knows_all_of_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Views(monkeypatch, ([10], [], {10})).house.strays(2, set()) == [10]


def test_children_that_a_session_never_waited_for_are_nothing_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Views(monkeypatch, ([], [10], {10}), ([], [10], {10})).house.strays(2, set()) == []
    assert Views(monkeypatch, ([5], [], set())).house.strays(2, {5}) == []
