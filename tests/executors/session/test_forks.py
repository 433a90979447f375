"""Checkpoint, restore and fork of live sessions give exact, independent copies or a clear error."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cellblock import Checkpoint, CheckpointError, SandboxSessionServer
from cellblock.testing.liveness import wait_until
from tests.executors.session.live_session import LiveSession, forked, open_session, run_async

pytestmark = pytest.mark.depends_on_user


def tree(folder: Path) -> dict[str, object]:
    """Return the contents of `folder`: text of files, targets of links, and permissions."""
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


def test_variables_and_history_can_be_restored_several_times(live: LiveSession) -> None:
    live.run_ok("x, data = 1, {'a': [1]}\ndef f(): return x, data")
    live.run_ok("1 + 1")
    checkpoint = live.checkpoint()
    for _ in range(3):
        live.run_ok("x = 2; data['a'].append(3); y = 1; del f\n2 + 2")
        live.restore(checkpoint)
        assert live.run_ok("_, len(In)") == "(2, 4)"
        assert live.run_ok("print(f(), 'y' in globals())") == "(1, {'a': [1]}) False"


def test_checkpoints_can_be_restored_in_any_order(live: LiveSession) -> None:
    checkpoints = list[Checkpoint]()
    for number in range(3):
        live.run_ok(f"x = {number}\nopen('x', 'w').write('{number}') and None")
        checkpoints.append(live.checkpoint())
    for number in (0, 2, 1, 1, 0, 2):
        live.restore(checkpoints[number])
        assert live.run_ok("print(x, open('x').read())") == f"{number} {number}"
    assert [*live.executor.checkpoints] == checkpoints


def test_a_crash_and_a_restore_can_follow_each_other(live: LiveSession) -> None:
    live.run_ok("x = 1")
    checkpoint = live.checkpoint()
    live.run_ok("x = 2")
    for _ in range(2):
        live.restore(checkpoint)
        live.crash("x = 3; import os; os._exit(3)")  # it is as it was after the restore
        assert live.run_ok("x") == "1"


def test_a_restore_ends_processes_and_threads_and_drops_their_output(keeping: LiveSession) -> None:
    keeping.run_ok("import os, subprocess, threading")
    checkpoint = keeping.checkpoint()
    keeping.run_ok("threading.Thread(target=threading.Event().wait, daemon=True).start()")
    text = "while [ ! -e go ]; do sleep 0.01; done; echo late; : > said; exec sleep 100"
    keeping.run_ok(f"p = subprocess.Popen(['sh', '-c', {text!r}])")
    (keeping.folder / "go").touch()
    run_async(wait_until((keeping.folder / "said").exists, "the process prints"))
    keeping.restore(checkpoint)
    assert keeping.run_ok("threading.active_count()") == "1"
    assert keeping.run_ok("len([n for n in os.listdir('/proc') if n.isdigit()])") == "1"


# work folder

PREPARE = """
import os
os.makedirs('nested/deeper'); open('nested/deeper/file', 'w').write('deep')
for name in ('same', 'changed', 'removed', 'renamed', 'touched', 'typed', 'modes', 'longer'):
    open(name, 'w').write(name)
os.symlink('same', 'link'); os.symlink('missing', 'broken')
os.mkdir('empty'); os.chmod('modes', 0o640)
os.link('same', 'hard'); os.utime('touched', ns=(1, 1))
"""
CHANGE = """
import os, shutil
open('changed', 'w').write('CHANGED'); os.unlink('removed')
os.rename('renamed', 'other'); open('added', 'w').write('new')
os.utime('touched', ns=(5, 5)); os.unlink('typed')
os.mkdir('typed'); open('typed/x', 'w'); os.chmod('modes', 0o400)
open('longer', 'a').write('!'); shutil.rmtree('nested'); open('nested', 'w').write('a file now')
os.unlink('link'); os.symlink('changed', 'link')
os.unlink('broken'); open('broken', 'w'); os.rmdir('empty')
os.makedirs('added folder/below'); os.symlink('/etc/passwd', 'added folder/out')
"""


def test_restore_brings_back_the_work_folder(live: LiveSession) -> None:
    live.run_ok(PREPARE)
    before, checkpoint = tree(live.folder), live.checkpoint()
    assert len(before) == 15
    for _ in range(2):
        live.run_ok(CHANGE)
        assert tree(live.folder) != before
        live.restore(checkpoint)
        assert tree(live.folder) == before


def test_a_change_with_the_same_size_and_mtime_is_detected(live: LiveSession) -> None:
    """Size and modification time are equal. Only the change time differs, which code cannot set."""
    live.run_ok("import os\nopen('f', 'w').write('one'); os.utime('f', ns=(7, 7))")
    first = live.checkpoint()
    live.run_ok("open('f', 'r+').write('two'); os.utime('f', ns=(7, 7))")
    second = live.checkpoint()
    for checkpoint, text in ((first, "one"), (second, "two"), (first, "one")):
        live.restore(checkpoint)
        assert live.run_ok("print(open('f').read())") == text


def test_unchanged_files_are_not_copied_again(live: LiveSession) -> None:
    live.run_ok(
        "open('large', 'wb').write(bytes(range(256)) * 4096) and None; open('small', "
        "'w').write('1') and None"
    )
    first = live.checkpoint()
    live.run_ok("open('small', 'w').write('22') and None")
    second = live.checkpoint()
    assert first.copied_bytes + first.shared_bytes == (1 << 20) + 1
    assert second.copied_bytes <= 2
    assert second.copied_bytes + second.shared_bytes == (1 << 20) + 2
    live.run_ok("open('large', 'r+b').write(b'changed') and None")
    for checkpoint in (second, first):
        live.restore(checkpoint)
        assert live.run_ok("open('large', 'rb').read() == bytes(range(256)) * 4096") == "True"


def test_writing_into_the_work_folder_never_changes_a_checkpoint(live: LiveSession) -> None:
    live.run_ok("import mmap\nopen('f', 'w').write('frozen') and None")
    checkpoints = [live.checkpoint(), live.checkpoint()]
    live.run_ok(
        "f = open('f', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:6] = b'melted'; "
        "m.flush(); m.close(); f.close()"
    )
    for checkpoint in checkpoints:
        live.restore(checkpoint)
        assert live.run_ok("print(open('f').read())") == "frozen"


def test_open_files_keep_their_position(live: LiveSession) -> None:
    live.run_ok(
        "out = open('log', 'w'); out.write('one\\n'); lines = open('data', 'w+'); "
        "lines.write('a\\nb\\nc\\n'); lines.seek(0)"
    )
    assert live.run_ok("lines.readline()") == "'a\\n'"
    checkpoint = live.checkpoint()
    for text in ("two", "three"):
        live.run_ok(f"out.write('{text}\\n'); out.flush()")
        found = live.run_ok("print(open('log').read().split(), lines.readline())")
        assert found == f"['one', '{text}'] b"
        live.restore(checkpoint)
    live.run_ok("out.write('held\\n') and None")  # it is in a buffer
    with forked(live, 2) as (one, other):
        for branch, name in ((one, "one"), (other, "other")):
            branch.run_ok(f"out.write('of-{name}'); out.close()")
        for branch, name in ((one, "one"), (other, "other")):
            found = branch.run_ok("print(open('log').read().split(), lines.read())")
            assert found == f"['one', 'held', 'of-{name}'] b\nc"
    live.run_ok("out.close()")
    assert live.run_ok("print(open('log').read())") == "one\nheld"


# random numbers

RANDOM = "import numpy, random; random.random(), random.randrange(10**9), numpy.random.random()"


def test_random_numbers_repeat_after_a_restore_and_differ_in_forks(live: LiveSession) -> None:
    pytest.importorskip("numpy", reason="numpy is not installed")
    live.run_ok("import numpy, random; random.seed(1); numpy.random.seed(1)")
    checkpoint = live.checkpoint()
    found = set[str]()
    for _ in range(3):
        found.add(live.run_ok(RANDOM))
        live.restore(checkpoint)
    assert len(found) == 1
    with forked(live, 3) as branches:
        drawn = [found.copy().pop(), *(branch.run_ok(RANDOM) for branch in branches)]
        assert [len({*column}) for column in zip(*map(eval, drawn), strict=True)] == [4, 4, 4]
    assert live.run_ok(RANDOM) in found


# mapped files


def test_a_mapped_file_is_that_of_the_copys_work_folder(live: LiveSession) -> None:
    live.run_ok(
        "import mmap; f = open('data', 'w+b'); f.write(bytes(9000)); f.flush()\n"
        "m = mmap.mmap(f.fileno(), 0); part = mmap.mmap(f.fileno(), 99, offset=mmap.PAGESIZE)\n"
        "def put(text): m[:3] = part[:3] = text\n"
        "def seen(): return m[:3], part[:3], open('data', 'rb').read()[4094:4099]\n"
        "put(b'one'); "
    )
    first = live.checkpoint()
    live.run_ok("put(b'two')")
    second = live.checkpoint()  # the file's times do not tell that it has changed
    with forked(live) as (branch,):
        branch.run_ok("put(b'new')")
        assert branch.run_ok("seen()") == r"(b'new', b'new', b'\x00\x00new')"
        live.run_ok("put(b'old')")
        assert branch.run_ok("seen()") == r"(b'new', b'new', b'\x00\x00new')"
    for checkpoint, text in ((first, "one"), (second, "two"), (first, "one")):
        live.restore(checkpoint)
        expected = rf"(b'{text}', b'{text}', b'\x00\x00{text}')"
        assert live.run_ok("seen()") == expected
        live.crash()
        assert live.run_ok("seen(), put(b'new')") == f"({expected}, None)"


# refusals

UNSUPPORTED = {
    "a thread": (
        (
            "import threading, time\nt = threading.Thread(target=time.sleep, args=(600,), "
            "name='counter')\nt.start()"
        ),
        "the Python thread 'counter'",
    ),
    "a child": (
        "import subprocess; p = subprocess.Popen(['sleep', '100'])",
        r"the child process \d+ \(sleep\)",
    ),
    "a connection": (
        (
            "import socket\ns = socket.create_server(('127.0.0.1', 0)); "
            "c = socket.create_connection(s.getsockname())"
        ),
        "a network socket",
    ),
    "a terminal": ("import pty; ends = pty.openpty()", "an open terminal"),
    "shared memory": ("import mmap; m = mmap.mmap(-1, 4096)", "writable shared memory"),
    "shared memory with a name": (
        "import multiprocessing.shared_memory as m; s = m.SharedMemory('cbx', True, 4096)",
        "writable shared memory|child process",
    ),
    "a pool": (
        "import multiprocessing; p = multiprocessing.get_context('fork').Pool(2)",
        "thread|child process",
    ),
}


def test_state_that_cannot_be_copied_is_refused_and_named(keeping: LiveSession) -> None:
    keeping.run_ok("x = 1")
    checkpoint = keeping.checkpoint()
    for code, named in UNSUPPORTED.values():
        keeping.run_ok(code)
        with pytest.raises(CheckpointError, match=named):
            keeping.checkpoint()
        with pytest.raises(CheckpointError, match=named):
            keeping.fork()
        assert keeping.run_ok("x") == "1", named
        assert len(keeping.executor.checkpoints) == 1, named
        keeping.restore(checkpoint)
        assert keeping.run_ok("x") == "1", named
    keeping.checkpoint()


def test_a_child_that_the_end_of_its_block_killed_is_no_obstacle(live: LiveSession) -> None:
    forks = "import os, time\nif os.fork() == 0: time.sleep(100)\n"
    live.run_ok(f"{forks}import subprocess; p = subprocess.Popen(['sleep', '100'])")
    checkpoint = live.checkpoint()
    live.run_ok(f"{forks}p = subprocess.Popen(['sleep', '100'])")
    with forked(live) as (branch,):
        assert branch.run_ok("print('branch')") == "branch"
    assert live.run_ok("p.wait()") == "-9"
    live.restore(checkpoint)
    assert live.run_ok("p.wait()") == "-9"


# script magics


def test_after_a_script_block_the_session_can_be_copied(live: LiveSession) -> None:
    """IPython watches the program of a script block in a thread, which a fork would lose."""
    live.run_ok("import os, threading\nx = 1")
    assert live.run_ok("%%bash\necho one") == "one"
    checkpoint = live.checkpoint()
    assert live.run_ok("threading.active_count(), len(os.listdir('/proc/self/task'))") == "(1, 1)"
    assert live.run_ok("x = 2\nget_ipython().run_cell_magic('sh', '', 'echo two')") == "two"
    live.crash()
    assert live.run_ok("x") == "2"
    assert live.run_ok("%%script bash --out said\necho three") == ""
    with forked(live) as (branch,), forked(live, checkpoint=checkpoint) as (earlier,):
        for one in (branch, earlier, live):
            assert one.run_ok("%%bash\necho branch") == "branch"
        assert branch.run_ok("x, said") == "(2, 'three\\n')"
        branch.crash()
        assert (branch.run_ok("x"), earlier.run_ok("x")) == ("2", "1")
    live.restore(checkpoint)
    assert live.run_ok("%%bash\necho four") == "four"


def test_after_a_failed_script_block_the_session_recovers(shared: SandboxSessionServer) -> None:
    with open_session(shared, timeout=2) as live:
        for code in ("exit 3", "sleep 99", "sleep 99 & echo so far; wait", "trap '' INT; sleep 99"):
            live.run_ok("x = 1")
            failed = live.run(f"x = 2\nget_ipython().run_cell_magic('bash', '', {code!r})")
            assert failed.exit_code != 0, code
            before = live.run_ok("x")
            live.crash("x = 3; import os; os._exit(3)")
            assert live.run_ok("x") == before, code
            assert live.run_ok("%%bash\necho again") == "again", code
            run_async(live.executor.drop(live.checkpoint()))


def test_a_background_script_keeps_its_thread_while_it_runs(keeping: LiveSession) -> None:
    # `exit`: the copy that is made after the block holds the script's input open for ever.
    keeping.run_ok("%%bash --bg --out said --proc process\necho done; exit")
    assert keeping.run_ok("(await said.read()).decode()").startswith("'done\\n'")
    assert keeping.run_ok("await process.wait()") == "0"
    with pytest.raises(CheckpointError, match="run_forever"):
        keeping.checkpoint()
    keeping.run_ok("del said, process")
    keeping.run_ok("%%bash --bg\nexec sleep 100")
    with pytest.raises(CheckpointError, match="run_forever"):
        keeping.checkpoint()
    keeping.run_ok("%killbgscripts")
    keeping.checkpoint()


# lifetime and limits


def test_the_number_of_checkpoints_is_limited_and_dropping_frees_one(live: LiveSession) -> None:
    checkpoints = [live.checkpoint() for _ in range(6)]
    with pytest.raises(CheckpointError, match="already has 6 checkpoints, its limit"):
        live.checkpoint()
    for _ in range(2):
        run_async(live.executor.drop(checkpoints[2]))
    assert [*live.executor.checkpoints] == [*checkpoints[:2], *checkpoints[3:]]
    with pytest.raises(CheckpointError, match="dropped"):
        live.restore(checkpoints[2])
    with pytest.raises(CheckpointError, match="dropped"):
        live.fork(1, checkpoints[2])
    live.checkpoint()


def test_a_checkpoint_expires(live: LiveSession) -> None:
    live.run_ok("x = 1")
    checkpoint = live.checkpoint(lifetime_seconds=0.2)
    assert checkpoint.expires_at is not None
    while live.executor.checkpoints:
        live.run_ok("x")
    with pytest.raises(CheckpointError, match="expired"):
        live.restore(checkpoint)
    assert live.run_ok("x") == "1"


def test_checkpoints_are_deleted_with_their_session(live: LiveSession) -> None:
    live.run_ok("x = 1")
    checkpoint = live.checkpoint()
    run_async(live.executor.restart())
    assert live.executor.checkpoints == ()
    with pytest.raises(CheckpointError):
        live.restore(checkpoint)
    assert live.run("x").exit_code == 1


def test_a_fork_count_below_one_is_refused(live: LiveSession) -> None:
    for count in (0, -1):
        with pytest.raises(ValueError, match="count"):
            live.fork(count)


def test_a_folder_that_is_nested_too_deep_is_refused(live: LiveSession) -> None:
    live.run_ok(
        "import os\nfor _ in range(80): os.mkdir('d'); os.chdir('d')\nos.chdir('/workspace')"
    )
    for copy in (live.checkpoint, live.fork):
        with pytest.raises(CheckpointError, match="64 folders deep"):
            copy()
    assert live.run_ok("1") == "1"


def test_a_branch_can_create_terminals(live: LiveSession) -> None:
    made = live.run_ok("import os, pty; mine = pty.openpty(); os.listdir('/dev/pts')")
    assert made == "['0', 'ptmx']"
    live.run_ok("[os.close(end) for end in mine] and None")
    with forked(live) as (branch,):
        live.run_ok("mine = pty.openpty() and None")
        made = branch.run_ok("mine = pty.openpty(); os.ttyname(mine[1]), os.listdir('/dev/pts')")
        assert made == "('/dev/pts/0', ['0', 'ptmx'])"
