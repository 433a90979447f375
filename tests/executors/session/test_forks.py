"""Checkpoint, restore and fork of live sessions: exact copies, that never see each other again, or a refusal that says why."""

# ruff: noqa: E501 - a program a line

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import Checkpoint, CheckpointError, Limits, SandboxSessionServer
from tests.executors.session.live_session import Live, forked, server, session, wait


@pytest.fixture(scope="module")
def shared() -> Iterator[SandboxSessionServer]:
    with server(
        limits=Limits(memory_bytes=512 << 20, processes=200, tmp_bytes=64 << 20, checkpoints=6)
    ) as running:
        yield running


def tree(folder: Path) -> dict[str, object]:
    """Give what is in `folder`: text of files, targets of links, and rights."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", path.stat().st_mode & 0o777)
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode & 0o777, path.stat().st_mtime_ns)
    return found


# memory


def test_restoring_brings_variables_back_as_often_as_wanted(live: Live) -> None:
    live.done("x, data = 1, {'a': [1]}\ndef f(): return x, data")
    mark = live.checkpoint()
    for _ in range(3):
        live.done("x = 2; data['a'].append(3); y = 1; del f")
        live.restore(mark)
        assert live.done("print(f(), 'y' in globals())") == "(1, {'a': [1]}) False"


def test_restoring_goes_back_and_forth_between_checkpoints(live: Live) -> None:
    marks = list[Checkpoint]()
    for number in range(3):
        live.done(f"x = {number}\nopen('x', 'w').write('{number}') and None")
        marks.append(live.checkpoint())
    for number in (0, 2, 1, 1, 0, 2):
        live.restore(marks[number])
        assert live.done("print(x, open('x').read())") == f"{number} {number}"
    assert [mark.name for mark in live.executor.checkpoints] == [mark.name for mark in marks]


def test_history_goes_back_as_well(live: Live) -> None:
    live.done("1 + 1")
    mark = live.checkpoint()
    live.done("2 + 2")
    live.restore(mark)
    assert live.done("_, len(In)") == "(2, 3)"


def test_a_restored_session_recovers_to_what_was_restored(live: Live) -> None:
    live.done("x = 1")
    mark = live.checkpoint()
    live.done("x = 2")
    live.restore(mark)
    ended = live.run("import os; os._exit(3)")
    assert (ended.session_restored, live.done("x")) == (True, "1"), ended


def test_a_session_that_failed_can_be_restored(live: Live) -> None:
    live.done("x = 1")
    mark = live.checkpoint()
    live.run("x = 2\nimport os; os._exit(3)")
    live.restore(mark)
    assert live.done("x") == "1"


def test_processes_and_threads_of_later_are_gone_after_a_restore(
    shared: SandboxSessionServer,
) -> None:
    with session(shared, keep_processes=True) as live:
        live.done("import os, subprocess, threading, time")
        mark = live.checkpoint()
        live.done(
            "p = subprocess.Popen(['sleep', '100']); threading.Thread(target=time.sleep, args=(100,), daemon=True).start()"
        )
        live.restore(mark)
        assert (
            live.done(
                "print(threading.active_count(), len([n for n in os.listdir('/proc') if n.isdigit()]))"
            )
            == "1 1"
        )


def test_output_of_what_is_given_up_is_not_seen_after_a_restore(
    shared: SandboxSessionServer,
) -> None:
    with session(shared, keep_processes=True) as live:
        mark = live.checkpoint()
        live.done(
            "import subprocess, time; p = subprocess.Popen(['sh', '-c', 'sleep 0.3; echo late'])"
        )
        time.sleep(0.6)
        live.restore(mark)
        assert live.done("1") == "1"


# work folder

PREPARE = """
import os
os.makedirs('nested/deeper'); open('nested/deeper/file', 'w').write('deep')
for name in ('same', 'changed', 'removed', 'renamed', 'touched', 'typed', 'modes', 'longer'): open(name, 'w').write(name)
os.symlink('same', 'link'); os.symlink('missing', 'broken'); os.mkdir('empty'); os.chmod('modes', 0o640)
os.link('same', 'hard'); os.utime('touched', ns=(1, 1))
"""
CHANGE = """
import os, shutil
open('changed', 'w').write('CHANGED'); os.unlink('removed'); os.rename('renamed', 'other'); open('added', 'w').write('new')
os.utime('touched', ns=(5, 5)); os.unlink('typed'); os.mkdir('typed'); open('typed/x', 'w'); os.chmod('modes', 0o400)
open('longer', 'a').write('!'); shutil.rmtree('nested'); open('nested', 'w').write('a file now')
os.unlink('link'); os.symlink('changed', 'link'); os.unlink('broken'); open('broken', 'w'); os.rmdir('empty')
os.makedirs('added folder/below'); os.symlink('/etc/passwd', 'added folder/out')
"""


def test_restoring_brings_the_work_folder_back(live: Live) -> None:
    live.done(PREPARE)
    before, mark = tree(live.folder), live.checkpoint()
    assert len(before) == 15
    for _ in range(2):
        live.done(CHANGE)
        assert tree(live.folder) != before
        live.restore(mark)
        assert tree(live.folder) == before


def test_a_change_that_hides_is_seen(live: Live) -> None:
    """Same size, same time of modification: only the time of change tells, which nobody can set."""
    live.done("import os\nopen('f', 'w').write('one'); os.utime('f', ns=(7, 7))")
    first = live.checkpoint()
    live.done("open('f', 'r+').write('two'); os.utime('f', ns=(7, 7))")
    second = live.checkpoint()
    for mark, text in ((first, "one"), (second, "two"), (first, "one")):
        live.restore(mark)
        assert live.done("print(open('f').read())") == text


def test_what_has_not_changed_is_not_copied_again(live: Live) -> None:
    live.done(
        "open('large', 'wb').write(bytes(range(256)) * 4096) and None; open('small', 'w').write('1') and None"
    )
    first = live.checkpoint()
    live.done("open('small', 'w').write('22') and None")
    second = live.checkpoint()
    assert first.copied_bytes + first.shared_bytes == (1 << 20) + 1
    assert (second.copied_bytes <= 2, second.copied_bytes + second.shared_bytes) == (
        True,
        (1 << 20) + 2,
    )
    live.done("open('large', 'r+b').write(b'changed') and None")
    for mark in (second, first):
        live.restore(mark)
        assert live.done("print(open('large', 'rb').read() == bytes(range(256)) * 4096)") == "True"


def test_writing_into_the_work_folder_never_changes_a_checkpoint(live: Live) -> None:
    live.done("import mmap\nopen('f', 'w').write('frozen') and None")
    marks = [live.checkpoint(), live.checkpoint()]
    live.done(
        "f = open('f', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:6] = b'melted'; m.flush(); m.close(); f.close()"
    )
    for mark in marks:
        live.restore(mark)
        assert live.done("print(open('f').read())") == "frozen"


def test_open_files_go_on_where_they_were(live: Live) -> None:
    live.done(
        "out = open('log', 'w'); out.write('one\\n'); lines = open('data', 'w+'); lines.write('a\\nb\\nc\\n'); lines.seek(0)"
    )
    assert live.done("lines.readline()") == "'a\\n'"
    mark = live.checkpoint()
    for text in ("two", "three"):
        live.done(f"out.write('{text}\\n'); out.flush()")
        assert (
            live.done("print(open('log').read().split(), lines.readline())")
            == f"['one', '{text}'] b"
        )
        live.restore(mark)
    with forked(live, 2) as (one, other):
        one.done("out.write('of one\\n'); out.close()")
        other.done("out.write('of other\\n'); out.close()")
        assert [
            branch.done("print(open('log').read().split('\\n'), lines.read())")
            for branch in (one, other)
        ] == [
            "['one', 'of one', ''] b\nc",
            "['one', 'of other', ''] b\nc",
        ]
    live.done("out.close()")
    assert live.done("print(open('log').read())") == "one"


# random numbers

RANDOM = "import random, os; print(random.random(), random.randrange(10**9))"


def test_random_numbers_repeat_after_a_restore_and_differ_in_forks(live: Live) -> None:
    live.done("import random; random.seed(1)")
    mark = live.checkpoint()
    found = set[str]()
    for _ in range(3):
        found.add(live.done(RANDOM))
        live.restore(mark)
    assert len(found) == 1
    with forked(live, 3) as branches:
        assert len(found | {branch.done(RANDOM) for branch in branches}) == 4
    assert live.done(RANDOM) in found


def test_numpys_random_numbers_repeat_after_a_restore_and_differ_in_forks() -> None:
    pytest.importorskip("numpy", reason="numpy is not installed")
    with session(None) as live:
        live.done("import numpy; numpy.random.seed(1)")
        mark, code = live.checkpoint(), "print(numpy.random.random(2).tolist())"
        first = live.done(code)
        live.restore(mark)
        assert live.done(code) == first
        with forked(live, 2, mark) as branches:
            assert len({first, *(branch.done(code) for branch in branches)}) == 3


# refusals

REFUSED = {
    "a thread": ("import threading, time\nt = threading.Thread(target=time.sleep, args=(3,), name='counter')\nt.start()",
                 "the Python thread 'counter'"),
    "a child": ("import subprocess; p = subprocess.Popen(['sleep', '100'])", r"the child process \d+ \(sleep\)"),
    "a connection": ("import socket\ns = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())",
                     "a network socket"),
    "a terminal": ("import pty; ends = pty.openpty()", "an open terminal"),
    "shared memory": ("import mmap; m = mmap.mmap(-1, 4096)", "memory that is shared on purpose"),
    "shared memory with a name": ("import multiprocessing.shared_memory as m; s = m.SharedMemory('cbx', True, 4096)",
                                  "memory that is shared on purpose|child process"),
    "a pool": ("import multiprocessing; p = multiprocessing.get_context('fork').Pool(2)", "thread|child process"),
    "a task": ("import asyncio\nasync def later(): await asyncio.sleep(60)\n"
               "async def begin(): return asyncio.create_task(later(), name='left-over')\ntask = await begin()",
               "the asyncio task 'left-over'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_copied_is_refused_by_name(name: str, shared: SandboxSessionServer) -> None:
    code, named = REFUSED[name]
    with session(shared, keep_processes=True) as live:
        live.done("x = 1")
        mark = live.checkpoint()
        live.done(code)
        with pytest.raises(CheckpointError, match=named):
            live.checkpoint()
        with pytest.raises(CheckpointError, match=named):
            live.fork()
        assert live.done("x") == "1"
        assert len(live.executor.checkpoints) == 1
        live.restore(mark)
        assert live.done("x") == "1"
        live.checkpoint()


# scripts


def test_after_a_script_cell_the_session_can_be_copied(live: Live) -> None:
    """IPython has such cells' programs looked after by a thread of its own, which no copy could carry over."""
    live.done("import os, threading\nx = 1")
    assert live.done("%%bash\necho one") == "one"
    mark = live.checkpoint()
    assert live.done("threading.active_count(), len(os.listdir('/proc/self/task'))") == "(1, 1)"
    assert live.done("x = 2\nget_ipython().run_cell_magic('sh', '', 'echo two')") == "two"
    ended = live.run("import os; os._exit(3)")
    assert (ended.session_restored, live.done("x")) == (True, "2"), ended
    assert live.done("%%script bash --out said\necho three") == ""
    with forked(live) as (branch,), forked(live, mark=mark) as (earlier,):
        assert [one.done("%%bash\necho branch") for one in (branch, earlier, live)] == [
            "branch"
        ] * 3
        assert branch.done("x, said") == "(2, 'three\\n')"
        ended = branch.run("import os; os._exit(3)")
        assert (ended.session_restored, branch.done("x"), earlier.done("x")) == (True, "2", "1"), (
            ended
        )
    live.restore(mark)
    assert live.done("%%bash\necho four") == "four"


@pytest.mark.parametrize(
    "code", ["exit 3", "sleep 100", "sleep 100 & echo so far; wait", "trap '' INT; sleep 100"]
)
def test_after_a_script_cell_that_failed_the_session_recovers(
    code: str, shared: SandboxSessionServer
) -> None:
    with session(shared, timeout=2) as live:
        live.done("x = 1")
        assert live.run(f"x = 2\nget_ipython().run_cell_magic('bash', '', {code!r})").exit_code != 0
        before = live.done("x")
        ended = live.run("x = 3; import os; os._exit(3)")
        assert (ended.session_restored, live.done("x")) == (True, before), ended
        assert live.done("%%bash\necho again") == "again"
        live.checkpoint()


def test_a_script_in_the_background_keeps_its_thread_while_it_is_needed(
    shared: SandboxSessionServer,
) -> None:
    with session(shared, keep_processes=True) as live:
        live.done("%%bash --bg --out said --proc process\necho done")
        assert live.done("(await said.read()).decode()") == "'done\\n'"
        assert live.done("await process.wait()") == "0"
        with pytest.raises(CheckpointError, match="run_forever"):
            live.checkpoint()
        live.done("del said, process")
        live.done("%%bash --bg\nexec sleep 100")
        with pytest.raises(CheckpointError, match="run_forever"):
            live.checkpoint()
        live.done("%killbgscripts")
        live.checkpoint()


# lifetime


def test_checkpoints_are_bounded_and_room_comes_by_dropping(live: Live) -> None:
    marks = [live.checkpoint() for _ in range(6)]
    with pytest.raises(CheckpointError, match=r"6 checkpoints already \(Limits.checkpoints\)"):
        live.checkpoint()
    for _ in range(2):
        wait(live.executor.drop(marks[2]))
    assert [mark.name for mark in live.executor.checkpoints] == [
        mark.name for mark in marks if mark is not marks[2]
    ]
    with pytest.raises(CheckpointError, match="dropped"):
        live.restore(marks[2])
    with pytest.raises(CheckpointError, match="dropped"):
        live.fork(1, marks[2])
    live.checkpoint()


def test_a_checkpoint_expires(live: Live) -> None:
    live.done("x = 1")
    mark = live.checkpoint(lifetime_seconds=0.2)
    assert mark.expires_at is not None
    deadline = time.monotonic() + 10
    while live.executor.checkpoints and time.monotonic() < deadline:
        live.done("x")
    with pytest.raises(CheckpointError, match="expired"):
        live.restore(mark)
    assert live.done("x") == "1"


def test_checkpoints_end_with_their_session(live: Live) -> None:
    live.done("x = 1")
    mark = live.checkpoint()
    wait(live.executor.restart())
    assert live.executor.checkpoints == ()
    with pytest.raises(CheckpointError):
        live.restore(mark)
    assert live.run("x").exit_code == 1


@pytest.mark.parametrize("count", [0, -1])
def test_a_fork_into_none_is_refused(count: int, live: Live) -> None:
    with pytest.raises(ValueError, match="count"):
        live.fork(count)


def test_a_folder_that_is_nested_too_deep_is_refused_and_not_cut(live: Live) -> None:
    live.done("import os\nfor _ in range(80): os.mkdir('d'); os.chdir('d')\nos.chdir('/workspace')")
    for copy in (live.checkpoint, live.fork):
        with pytest.raises(CheckpointError, match="64 folders deep"):
            copy()
    assert live.done("1") == "1"


def test_a_branch_has_terminals_of_its_own(live: Live) -> None:
    assert (
        live.done("import os, pty; mine = pty.openpty(); os.listdir('/dev/pts')") == "['0', 'ptmx']"
    )
    live.done("[os.close(end) for end in mine] and None")
    with forked(live) as (branch,):
        live.done("mine = pty.openpty() and None")
        assert (
            branch.done("mine = pty.openpty(); os.ttyname(mine[1]), os.listdir('/dev/pts')")
            == "('/dev/pts/0', ['0', 'ptmx'])"
        )
