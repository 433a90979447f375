"""Live sessions leave nothing behind, and links in a work folder never lead out of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from benchmarks import processes
from cellblock import (
    BackendError,
    CellblockError,
    Limits,
    SandboxSessionCodeExecutor,
    SandboxSessionServer,
    SessionError,
)
from cellblock.executors.workspace import snapshot
from cellblock.runtime.linux import process_tree
from cellblock.runtime.server.sessions.init_handle import SessionInitHandle
from cellblock.sandbox import cgroups
from tests.executors.session.live_session import (
    LiveSession,
    forked,
    open_server,
    open_session,
    run_async,
)
from tests.sandbox.probes import MARK

pytestmark = pytest.mark.depends_on_user

ROOT = Path(__file__).parents[3]

T = TypeVar("T")


@pytest.fixture(scope="module")
def shared() -> Iterator[SandboxSessionServer]:
    with open_server(
        limits=Limits(memory_bytes=256 << 20, processes=100, checkpoints=6, file_bytes=None)
    ) as running:
        yield running


def until(holds: Callable[[], bool]) -> bool:
    """Wait until `holds` returns True. Return False after a timeout."""
    deadline = time.monotonic() + 50
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def stable_value(measure: Callable[[], T]) -> T:
    """Return the result of `measure` as soon as it stays the same for a while."""
    deadline, value, since = time.monotonic() + 50, measure(), time.monotonic()
    while time.monotonic() < min(since + 0.4, deadline):
        time.sleep(0.02)
        if (now := measure()) != value:
            value, since = now, time.monotonic()
    return value


def server_pid(running: SandboxSessionServer) -> int:
    """Return the process ID of a server."""
    connection = running.runtime_server._connection
    assert connection is not None
    return connection.pid


def control_groups(pid: int) -> set[str]:
    """List the control groups of a server and its cells."""
    own = f"/cellblock-{os.stat('/proc/self/ns/pid').st_ino}-{pid}-"
    return {folder for folder, _, _ in os.walk("/sys/fs/cgroup") if own in folder}


BUSY = """
import os, subprocess, threading, time
subprocess.Popen(['sleep', '1000'])
subprocess.Popen(['setsid', 'sleep', '1000'], start_new_session=True)
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
open('/tmp/t', 'w').write('t'); open('/dev/shm/s', 'w').write('s'); open('w', 'w').write('w')
"""


def test_a_server_and_its_sessions_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_server() as running:
        lives = [open_session(running, keep_processes=True) for _ in range(2)]
        for live in lives:
            live.run_ok("x = 1")
            live.checkpoint()
        branches = lives[0].fork(2) + lives[1].fork(1)
        lives += [*branches, *branches[0].fork(1)]
        for live in lives:
            live.run_ok(BUSY)
        pids = processes.process_tree(pid := server_pid(running))
        assert len(pids) > 20
        assert control_groups(pid) or not cgroups.find_cgroups().version
    assert until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    for live in lives:
        live.stop()
    assert list(tmp_path.iterdir()) == []
    assert until(lambda: not control_groups(pid))


@pytest.mark.parametrize("parent_first", [True, False])
def test_sessions_that_stop_one_by_one_leave_nothing_behind(
    parent_first: bool,
    shared: SandboxSessionServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_session(shared) as warm:
        warm.run_ok("1")
    pid = server_pid(shared)

    def holdings() -> tuple[int, int]:
        return len(processes.process_tree(pid)), len(control_groups(pid))

    before = stable_value(holdings)
    parent = open_session(shared, keep_processes=True)
    parent.run_ok("x = 1")
    parent.checkpoint()
    lives = [parent, *parent.fork(3)]
    lives += lives[1].fork(1)
    for live in lives:
        live.run_ok(BUSY)
    for live in lives if parent_first else reversed(lives):
        live.stop()
    assert until(lambda: holdings() == before), (holdings(), before)
    assert list(tmp_path.iterdir()) == []


def test_repeated_use_does_not_accumulate_resources(
    shared: SandboxSessionServer, live: LiveSession
) -> None:
    pid = server_pid(shared)
    live.run_ok("import os; open('f', 'w').write('x' * 1000) and None")
    checkpoint = live.checkpoint()

    def use_all() -> None:
        live.restore(checkpoint)
        run_async(live.executor.drop(live.checkpoint()))
        live.fork()[0].stop()
        live.run("os._exit(3)")
        live.run_ok("open('f', 'w').write('y') and None")

    def holdings() -> tuple[int, ...]:
        assert isinstance(live.executor, SandboxSessionCodeExecutor)
        scratch = live.executor.place.scratch
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        files = sum(len(folders) + len(files) for _, folders, files in os.walk(scratch or ""))
        return len(processes.process_tree(pid)), descriptors, files, len(control_groups(pid))

    for _ in range(3):
        use_all()
    before = stable_value(holdings)
    count = 12
    for _ in range(count):
        use_all()

    def has_grown() -> bool:
        # Less than by one each time: a spare session, which has up to 8 descriptors, may have
        # been made or used meanwhile.
        return any(now >= then + count for now, then in zip(holdings(), before, strict=True))

    assert until(lambda: not has_grown()), (before, holdings())


def test_a_killed_server_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_server() as running:
        live = open_session(running, keep_processes=True)
        live.run_ok(BUSY)
        pids = processes.process_tree(server_pid(running))
        os.kill(pids[0], 9)
        assert until(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids[1:]))
        with pytest.raises((BackendError, SessionError)):
            live.run("1")
        live.stop()
    assert [path for path in tmp_path.iterdir() if path.name.startswith("cellblock-")] == []


LOSE_A_SESSION = """
from tests.executors.session.test_joined_servers import holders
lost = open_session(running)
lost.run_ok("held = open('held.txt', 'w')")
found = holders(server_pid(running), 'held.txt')
parents = {int(open(f'/proc/{pid}/stat').read().rsplit(')')[-1].split()[1]) for pid in found}
for pid in parents - {*found}:  # the first process of its cell
    os.kill(pid, 9)
try:
    lost.run('1')
except BackendError:
    pass
else:
    raise AssertionError"""


ROOT_ONLY = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can see which files a session has open"
)


@pytest.mark.parametrize("lose", ["", pytest.param(LOSE_A_SESSION, marks=ROOT_ONLY)])
def test_a_killed_caller_leaves_nothing_behind(lose: str, tmp_path: Path) -> None:
    program = f"""
import os, sys, tempfile
tempfile.tempdir = {str(tmp_path)!r}
sys.path[0:0] = {[str(ROOT / "src"), str(ROOT)]!r}
from tests.executors.session.live_session import open_server, open_session
from tests.executors.session.test_leftovers import server_pid
from benchmarks.processes import process_tree
from cellblock import BackendError
with open_server() as running:
    live = open_session(running, keep_processes=True)
    live.run_ok('1')
    branch = live.fork()[0]
    for one in (live, branch):
        one.run_ok({BUSY!r})
    exec({lose!r})
    print(*process_tree(server_pid(running)), flush=True)
    os.kill(os.getpid(), 9)
"""
    with open_session(None) as probe:
        probe.run_ok("1")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
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


# Each in a folder of its own.
LINKS = {
    "a link to a file": "os.symlink({file!r}, 'l')",
    "a link to its folder": "os.symlink({folder!r}, 'l')",
    "a link in place of a folder": (
        "os.mkdir('d'); open('d/secret', 'w').write('mine'); os.rename('d', 'e'); "
        "os.symlink({folder!r}, 'd')"
    ),
    "a link by dots": "os.symlink('../../out/secret', 'l')",
    "a link by /proc": "os.symlink('/proc/self/root' + {file!r}, 'l')",
    "a link to a link": "os.symlink({folder!r}, 'a'); os.symlink('a/secret', 'l')",
}


def contents(folder: Path) -> str:
    """Return the text of all files directly in `folder`."""
    found = [
        path.read_text() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    ]
    return "\n".join(found)


def test_a_link_never_exposes_a_file_of_the_machine(live: LiveSession, secret: Path) -> None:
    live.run_ok("import os")
    for name, code in LINKS.items():
        live.run_ok(f"os.mkdir({name!r}); os.chdir({name!r})".replace("/", "-"))
        live.run_ok(code.format(file=str(secret), folder=str(secret.parent)))
        live.run_ok("os.chdir('/workspace')")
    checkpoint = live.checkpoint()
    assert MARK not in contents(checkpoint.snapshot.path)
    read = (
        "for t, d, f in os.walk('.', followlinks=True):\n  for n in f:\n"
        "    try: print(open(f'{t}/{n}').read())\n    except OSError: pass"
    )
    with forked(live, 1) as (now,), forked(live, 1, checkpoint) as (then,):
        for branch in (now, then):
            assert MARK not in contents(branch.folder)
            assert MARK not in branch.output_of(read)
    live.restore(checkpoint)
    assert MARK not in contents(live.folder)
    assert secret.read_text() == MARK


SWAP_LINKS = """
import os, time
os.makedirs('d'); open('d/secret', 'w').write('mine'); os.symlink({folder!r}, 'l')
open('f', 'w').write('mine'); os.symlink({file!r}, 'g')
pid = os.fork()
if pid == 0:
    import ctypes
    libc = ctypes.CDLL(None)
    while True:  # exchange a folder with a link and a file with a link
        libc.renameat2(-100, b'd', -100, b'l', 2); libc.renameat2(-100, b'f', -100, b'g', 2)
"""


def test_links_swapped_in_during_a_copy_expose_nothing(
    shared: SandboxSessionServer, tmp_path: Path, secret: Path
) -> None:
    """A process of the session swaps links in and out while the folder is copied many times."""
    (tmp_path / "work").mkdir()
    with open_session(shared, tmp_path / "work", keep_processes=True) as live:
        live.run_ok(SWAP_LINKS.format(file=str(secret), folder=str(secret.parent)))
        copies = refused = 0
        while copies + refused < 100:
            target = tmp_path / f"copy-{copies + refused}"
            try:
                snapshot.copy_folder(live.folder, target)
            except OSError:
                refused += 1  # a folder or file that was replaced by a link is not opened
            else:
                copies += 1
            assert MARK not in contents(target), (copies, refused)


def test_a_copy_that_follows_links_is_detected(tmp_path: Path, secret: Path) -> None:
    """The check of the tests above detects a copy that follows links."""
    (tmp_path / "work").mkdir()
    os.symlink(secret, tmp_path / "work" / "l")
    shutil.copytree(tmp_path / "work", tmp_path / "careless")
    assert MARK in contents(tmp_path / "careless")
    snapshot.copy_folder(tmp_path / "work", tmp_path / "careful")
    assert MARK not in contents(tmp_path / "careful")


def test_restore_does_not_write_through_links(live: LiveSession, secret: Path) -> None:
    live.run_ok(
        "import os, shutil\nos.mkdir('out'); open('out/secret', 'w').write('mine'); "
        "open('f', 'w').write('mine') and None"
    )
    checkpoint = live.checkpoint()
    live.run_ok(
        f"shutil.rmtree('out'); os.symlink({str(secret.parent)!r}, 'out'); "
        f"os.unlink('f'); os.symlink({str(secret)!r}, 'f')"
    )
    live.restore(checkpoint)
    assert (secret.read_text(), os.listdir(secret.parent)) == (MARK, ["secret"])
    assert live.run_ok("print(open('out/secret').read(), open('f').read())") == "mine mine"


ODD_FILES = {
    "a pipe": "os.mkfifo('odd')",
    "a socket": "import socket; s = socket.socket(1); s.bind('odd')",
    "a link to itself": "os.symlink('odd', 'odd')",
    "a file with a hole": "os.truncate(os.open('odd', 66), 1 << 40)",
    "a name that is not UTF-8": "open(b'\\xff\\n', 'w').close()",
    "a deep folder": "p = '.'\nfor _ in range(200):\n  os.mkdir(p := p + '/d')",
    "many files": "for n in range(600): os.mknod(f'{n}')",
}


def test_odd_files_in_the_work_folder_neither_hang_nor_kill_the_session(live: LiveSession) -> None:
    live.run_ok("x = 1; import os; open('plain', 'w').write('plain') and None")
    empty = live.checkpoint()
    for name, code in ODD_FILES.items():
        live.run_ok(f"{code}\nNone")
        try:
            checkpoint = live.checkpoint()
            live.run_ok("os.unlink('plain')")
            live.restore(checkpoint)
            with forked(live) as (branch,):
                assert branch.run_ok("print(x, open('plain').read())") == "1 plain", name
            run_async(live.executor.drop(checkpoint))
        except CellblockError as error:
            assert "odd" in str(error) or "work folder" in str(error), (name, error)  # noqa: PT017 - it can also succeed
        assert live.run_ok("print(x)") == "1", name
        assert (live.folder / "plain").exists(), name
        live.restore(empty)


def test_files_without_permissions_are_in_copies_of_a_session(live: LiveSession) -> None:
    live.run_ok(
        "import os; os.mkdir('folder'); open('folder/f', 'w').write('inner')\n"
        "os.chmod('folder', 0); open('file', 'w').write('text'); os.chmod('file', 0)"
    )
    read = (
        "os.chmod('folder', 0o700); os.chmod('file', 0o600)\n"
        "print(open('folder/f').read(), open('file').read())"
    )
    lose = "os.chmod('folder', 0o700); os.unlink('folder/f'); os.unlink('file')"
    checkpoint = live.checkpoint()
    with forked(live) as (now,), forked(live, checkpoint=checkpoint) as (then,):
        assert [branch.run_ok(read) for branch in (now, then)] == ["inner text"] * 2
    live.run_ok(lose)
    live.restore(checkpoint)
    assert {(live.folder / name).stat().st_mode & 0o777 for name in ("folder", "file")} == {0}
    assert live.run_ok(read) == "inner text"


# Views of a cell's process tree, one after the other. Each has the children of session init, the
# children of the session, and the zombies.
Views = list[tuple[list[int], list[int], set[int]]]
# What a listing must find: the views, the processes that are no orphans, and the orphans.
LISTINGS: dict[str, tuple[Views, set[int], list[int]]] = {
    "a process that ends during a listing may have left a child": (
        [([], [10], {10}), ([11], [10], {10})],
        set(),
        [11],
    ),
    "while session init has zombies its children are unknown": ([([10], [], {10})], set(), [10]),
    "unwaited children of a session are no leftovers": ([([], [10], {10})] * 2, set(), []),
    "nor are those that are known": ([([5], [], set())], {5}, []),
}


@pytest.mark.parametrize("name", LISTINGS)
def test_the_orphans_of_a_session_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    views, known, orphans = LISTINGS[name]
    remaining, asked = list(views), list[int]()

    def children_of(pid: int) -> list[int]:
        if pid == 1 and asked and len(remaining) > 1:
            remaining.pop(0)
        asked.append(pid)
        of_init, of_session, _ = remaining[0]
        return of_init if pid == 1 else of_session

    def has_ended(pid: int) -> bool:
        return pid in remaining[0][2]

    def no_children(_pid: int) -> list[int]:
        return []

    init_handle = SessionInitHandle.__new__(SessionInitHandle)
    init_handle.pid, init_handle.branches = 1, set()
    monkeypatch.setattr(init_handle, "_children_of", children_of)
    monkeypatch.setattr(process_tree, "has_ended", has_ended)
    monkeypatch.setattr(process_tree, "children", no_children)
    assert init_handle.find_orphans(2, known) == orphans
