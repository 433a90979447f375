"""A cell serves one block after the other; nothing of a block is there for the next, nor for another executor."""

from __future__ import annotations

import contextlib
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cellblock import CodeBlock, Mount, Policy
from cellblock.sync import SyncCodeExecutor
from tests.sandbox.probes import MARK, done, local, said, sandbox, without_filter, without_landlock

CELL = "import os; print(os.readlink('/proc/self/ns/mnt'))"
SYSTEM_V = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"

# What a block leaves behind, and what finds it there and prints the mark.
LEFT = {
    "file in /tmp": ("open('/tmp/{name}', 'w')", "import os; os.stat('/tmp/{name}'); print(mark)"),
    "folder in /dev/shm": ("import os; os.mkdir('/dev/shm/{name}')", "import os; os.rmdir('/dev/shm/{name}'); print(mark)"),
    "shared memory": (
        SYSTEM_V + "assert libc.shmget({number}, 4096, 0o1666) >= 0",
        SYSTEM_V + "assert libc.shmctl(libc.shmget({number}, 4096, 0), 0, None) >= 0; print(mark)",
    ),
    "semaphore": (
        SYSTEM_V + "assert libc.semget({number}, 1, 0o1666) >= 0",
        SYSTEM_V + "assert libc.semctl(libc.semget({number}, 1, 0), 0, 0) >= 0; print(mark)",
    ),
    "message": (
        SYSTEM_V + "assert libc.msgget({number}, 0o1666) >= 0",
        SYSTEM_V + "assert libc.msgctl(libc.msgget({number}, 0), 0, None) >= 0; print(mark)",
    ),
    "message queue": (
        SYSTEM_V + "libc.mq_open(b'/{name}', 0o102, 0o600, None)",
        SYSTEM_V + "assert libc.mq_open(b'/{name}', 0) >= 0; libc.mq_unlink(b'/{name}'); print(mark)",
    ),
}  # fmt: skip
# What the kernel forgets with a process, without our doing.
FORGOTTEN = {
    "variable": (
        "import os; os.environ['X'] = 'left'",
        "import os; os.environ['X'] == 'left' and print(mark)",
    ),
    "limit": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (77, 77))",
        "import resource; resource.getrlimit(resource.RLIMIT_NOFILE)[1] == 77 and print(mark)",
    ),
    "timer": (
        "import signal; signal.setitimer(signal.ITIMER_REAL, 0.05)",
        "import signal, time; signal.signal(signal.SIGALRM, lambda *_: print(mark)); time.sleep(0.2)",
    ),
    "way of its input": (
        "import fcntl, os; fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK)",
        "import fcntl, os; fcntl.fcntl(0, fcntl.F_GETFL) & os.O_NONBLOCK and print(mark)",
    ),
    "lock of its input": (
        "import fcntl; fcntl.flock(0, fcntl.LOCK_EX)",
        "import fcntl\ntry: fcntl.flock(open('/dev/null'), fcntl.LOCK_EX | fcntl.LOCK_NB)\nexcept OSError: print(mark)",
    ),
    "mask": ("import os; os.umask(0o777)", "import os; os.umask(0) == 0o777 and print(mark)"),
    "process": (
        "import subprocess; subprocess.Popen(['sleep', '99'], start_new_session=True)",
        "import glob\nfor name in glob.glob('/proc/[0-9]*/cmdline'):\n  'sleep' in open(name).read() and print(mark)",
    ),
    "listener": (
        "import os, socket, time\ns = socket.create_server(('127.0.0.1', 7777))\nif os.fork() == 0: time.sleep(99)",
        "import socket; socket.create_connection(('127.0.0.1', 7777), 1); print(mark)",
    ),
}
# What there is in the sandbox alone.
INSIDE = {
    "rights of terminals": (
        "import os; os.chmod('/dev/ptmx', 0o600)",
        "import os; os.stat('/dev/ptmx').st_mode & 0o666 != 0o666 and print(mark)",
    ),
    "terminal": (
        "import os, pty, time\nif os.fork() == 0: pty.openpty(); time.sleep(99)\nwhile len(os.listdir('/dev/pts')) < 2: pass",
        "import os; len(os.listdir('/dev/pts')) > 1 and print(mark)",
    ),
}
# What is aimed at the first process of the cell, to hit the block after.
AIMED = {
    "SIGTERM": "import os, signal; os.kill(1, signal.SIGTERM)",
    "SIGKILL": "import os, signal; os.kill(1, signal.SIGKILL)",
    "SIGSTOP": "import os, signal; os.kill(1, signal.SIGSTOP)",
    "every signal": "import os, signal\nfor n in range(1, 65):\n  os.kill(1, n)",
    "a limit": "import resource; resource.prlimit(1, resource.RLIMIT_DATA, (1, 1))",
    "the processors": "import os; os.sched_setaffinity(1, {0})",
    "the priority": "import os; os.setpriority(os.PRIO_USER, 0, 19)",
}


def names(text: str, number: int) -> str:
    return f"mark = {MARK!r}\n" + text.replace("{name}", f"cellblock-left-{number}").replace(
        "{number}", str(number)
    )


def later(executor: SyncCodeExecutor, cell: str, code: str) -> str:
    """Run `code` in `cell`, which is free or soon will be; give its output.

    The cell that was cleared last is used first, so that all cells are taken at one time, more and more of them.
    """
    block = (
        f"import os, time\nif os.readlink('/proc/self/ns/mnt') == {cell!r}:\n  print({cell!r})\n"
    )
    block += textwrap.indent(code, "  ") + "\nelse: time.sleep(0.1)"
    for count in (4, 8, 16, 32):
        with ThreadPoolExecutor(count) as threads:
            for output in threads.map(said, [executor] * count, [block] * count):
                if output.startswith(cell):
                    return output.removeprefix(cell)
    raise AssertionError("no later block ran in the same cell")


def found_later(executor: SyncCodeExecutor, leave: str, find: str) -> bool:
    """Leave something, and look for it in the same cell."""
    cell, _, rest = done(executor, f"{CELL}\n{leave}").partition("\n")
    assert rest == ""
    return MARK in later(executor, cell, find)


@pytest.fixture(scope="module", params=["all walls", "without Landlock"])
def walled(request: pytest.FixtureRequest) -> Iterator[SyncCodeExecutor]:
    executor = sandbox()
    with without_landlock() if request.param == "without Landlock" else contextlib.nullcontext():
        executor.start()
    yield executor
    executor.stop()


@pytest.fixture(scope="module")
def free() -> Iterator[SyncCodeExecutor]:
    with local() as executor:
        yield executor


@pytest.mark.parametrize("name", [*LEFT, *FORGOTTEN, *INSIDE])
def test_the_next_block_does_not_find_the(name: str, walled: SyncCodeExecutor) -> None:
    leave, find = (LEFT | FORGOTTEN | INSIDE)[name]
    assert not found_later(walled, names(leave, 4242), names(find, 4242))


@pytest.mark.parametrize("name", LEFT)
def test_without_walls_the_next_block_finds_the(name: str, free: SyncCodeExecutor) -> None:
    leave, find = LEFT[name]
    number = list(LEFT).index(name) + 0x5EED0
    assert done(free, names(leave, number)) == ""
    assert done(free, names(find, number)) == MARK
    if name in ("shared memory", "semaphore", "message"):
        return  # the probe itself has removed it
    Path(f"/tmp/cellblock-left-{number}").unlink(missing_ok=True)


@pytest.mark.parametrize("name", LEFT)
def test_another_executor_does_not_find_the(name: str, walled: SyncCodeExecutor) -> None:
    leave, find = LEFT[name]
    with sandbox() as other:
        waiting = f"{names(leave, 77)}\nopen('left', 'w')\nimport time; time.sleep(9)"
        with contextlib.closing(walled.execute_stream([CodeBlock(waiting, "python")])) as events:
            next(iter(events))
            while not Path(walled.work_dir, "left").exists():
                time.sleep(0.01)
            assert MARK not in said(other, names(find, 77))
            assert "left" not in done(other, "import os; print(os.listdir())")
        Path(walled.work_dir, "left").unlink()


@pytest.mark.parametrize("name", AIMED)
def test_the_next_block_is_not_hit_by(name: str, walled: SyncCodeExecutor) -> None:
    healthy = """
import os, resource
print(os.getpriority(0, 0), len(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_DATA))
"""
    before = done(walled, healthy)
    cell = said(walled, f"{CELL}\n{AIMED[name]}").split("\n")[0]
    assert later(walled, cell, healthy).strip() == before


def test_without_the_filter_a_limit_hits_the_next_block() -> None:
    executor = sandbox()
    with without_filter():
        executor.start()
    leave = "import resource; resource.prlimit(1, resource.RLIMIT_STACK, (1 << 22, 1 << 22))"
    find = f"import resource; resource.getrlimit(resource.RLIMIT_STACK)[1] == 1 << 22 and print({MARK!r})"
    assert found_later(executor, leave, find)
    executor.stop()


def test_what_lies_beside_a_mount_below_tmp_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given")
    policy = Policy(read_only=(Mount(str(tmp_path), "/tmp/a/b/given"),))
    with sandbox(policy=policy) as executor:
        find = f"import os; 'left' in os.listdir('/tmp/a') + os.listdir('/tmp/a/b') and print({MARK!r})"
        for folder in ("/tmp/a", "/tmp/a/b"):
            assert not found_later(executor, f"open('{folder}/left', 'w')", find)
        assert done(executor, "print(open('/tmp/a/b/given/given').read())") == "given"


@pytest.mark.parametrize(
    ("leave", "find"),
    [
        ("open('/tmp/x', 'w')", "'x' in os.listdir('/tmp')"),
        (
            "s = os.stat('/tmp'); open('/tmp/x', 'w'); os.utime('/tmp', ns=(s.st_atime_ns, s.st_mtime_ns))",
            "'x' in os.listdir('/tmp')",
        ),
        ("os.mkdir('/dev/shm/x')", "'x' in os.listdir('/dev/shm')"),
        ("os.chmod('/tmp', 0o700)", "os.stat('/tmp').st_mode & 0o777 == 0o700"),
    ],
)
def test_what_a_block_leaves_does_not_stay_after_many_that_left_nothing(
    leave: str, find: str
) -> None:
    with sandbox() as executor:
        for _ in range(
            12
        ):  # several in each cell, by when it is known that a change would move the folders' times
            done(executor, "import time; time.sleep(0.02)")
        assert not found_later(
            executor, f"import os; {leave}", f"import os; {find} and print({MARK!r})"
        )


def test_when_the_end_of_a_block_is_told_its_input_has_no_lock_any_more() -> None:
    lock = """
import fcntl, os
file = os.open('held', os.O_CREAT | os.O_RDWR)
os.dup2(file, 0)
os.close(file)
fcntl.flock(0, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
    with sandbox() as executor:
        for _ in range(
            300
        ):  # what ends may hold it for as long as the kernel takes back its memory, or it may not
            done(executor, lock)
