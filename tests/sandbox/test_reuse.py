"""A cell runs many blocks; nothing of a block is visible to the next one or another executor."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from cellblock import CodeBlock, Limits, Mount, Policy
from cellblock.sandbox import cgroups
from cellblock.sync import SyncCodeExecutor
from tests.sandbox.probes import (
    MARK,
    checked_output,
    local,
    output_of,
    sandbox,
    without_filter,
    without_landlock,
)

pytestmark = pytest.mark.depends_on_user
CELL = "import os; print(os.readlink('/proc/self/ns/mnt'))"
SYSTEM_V = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"

# What a block leaves behind, and code that prints the mark if it finds it.
LEFTOVERS = {
    "file in /tmp": ("open('/tmp/{name}', 'w')", "import os; os.stat('/tmp/{name}'); print(mark)"),
    "folder in /dev/shm": (
        "import os; os.mkdir('/dev/shm/{name}')",
        ("import os; os.rmdir('/dev/shm/{name}'); print(mark)"),
    ),
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
        SYSTEM_V
        + ("assert libc.mq_open(b'/{name}', 0) >= 0; libc.mq_unlink(b'/{name}'); print(mark)"),
    ),
}
# What ends with the process.
ENDED_WITH_PROCESS = {
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
        (
            "import signal, time; signal.signal(signal.SIGALRM, lambda *_: print(mark)); "
            "time.sleep(0.2)"
        ),
    ),
    "flags of stdin": (
        "import fcntl, os; fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK)",
        "import fcntl, os; fcntl.fcntl(0, fcntl.F_GETFL) & os.O_NONBLOCK and print(mark)",
    ),
    "lock on stdin": (
        "import fcntl; fcntl.flock(0, fcntl.LOCK_EX)",
        (
            "import fcntl\ntry: fcntl.flock(open('/dev/null'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
            "except OSError: print(mark)"
        ),
    ),
    "umask": ("import os; os.umask(0o777)", "import os; os.umask(0) == 0o777 and print(mark)"),
    "process": (
        "import subprocess; subprocess.Popen(['sleep', '99'], start_new_session=True)",
        (
            "import glob\nfor name in glob.glob('/proc/[0-9]*/cmdline'):\n"
            "  'sleep' in open(name).read() and print(mark)"
        ),
    ),
    "listener": (
        (
            "import os, socket, time\ns = socket.create_server(('127.0.0.1', 7777))\n"
            "if os.fork() == 0: time.sleep(99)"
        ),
        "import socket; socket.create_connection(('127.0.0.1', 7777), 1); print(mark)",
    ),
}
# What exists only in the sandbox.
SANDBOX_ONLY = {
    "rights of terminals": (
        "import os; os.chmod('/dev/ptmx', 0o600)",
        "import os; os.stat('/dev/ptmx').st_mode & 0o666 != 0o666 and print(mark)",
    ),
    "terminal": (
        (
            "import os, pty, time\nif os.fork() == 0: pty.openpty(); time.sleep(99)\n"
            "while len(os.listdir('/dev/pts')) < 2: pass"
        ),
        "import os; len(os.listdir('/dev/pts')) > 1 and print(mark)",
    ),
}
# Attacks on the first process of the cell, to affect the next block.
AIMED_AT_INIT = {
    "SIGTERM": "import os, signal; os.kill(1, signal.SIGTERM)",
    "SIGKILL": "import os, signal; os.kill(1, signal.SIGKILL)",
    "SIGSTOP": "import os, signal; os.kill(1, signal.SIGSTOP)",
    "every signal": "import os, signal\nfor n in range(1, 65):\n  os.kill(1, n)",
    "a limit": "import resource; resource.prlimit(1, resource.RLIMIT_DATA, (1, 1))",
    "the processors": "import os; os.sched_setaffinity(1, {0})",
    "the priority": "import os; os.setpriority(os.PRIO_USER, 0, 19)",
}


def fill_in(text: str, number: int) -> str:
    return f"mark = {MARK!r}\n" + text.replace("{name}", f"cellblock-left-{number}").replace(
        "{number}", str(number)
    )


IN_CELL = """
import os, time
if os.readlink('/proc/self/ns/mnt') == {cell!r}:
  print({cell!r})
  open('{name}', 'w').close()
{code}
else:
  open('{name}-' + os.urandom(8).hex(), 'w').close()
  while not os.path.exists('{name}') and sum('{name}' in f for f in os.listdir()) < {count}:
    time.sleep(0.01)
"""


@functools.cache
def cells_are_reused() -> bool:
    """Return False if each block needs a new cell: the kernel cannot reset a group's peak."""
    support = cgroups.find_cgroups()
    if support.version != 2:
        return True
    group = Path(tempfile.mkdtemp(prefix="test-", dir=support.memory))
    try:
        (group / "memory.peak").write_text("0")
    except OSError:
        return False
    finally:
        group.rmdir()
    return True


def run_later_in_cell(executor: SyncCodeExecutor, cell: str, code: str) -> str:
    """Run `code` in `cell` and return its output.

    The cell that became free last is used first. So run more and more blocks at the same time,
    until all cells are in use: the blocks wait until `cell` has one, or all have begun.
    """
    if not cells_are_reused():
        pytest.skip("each block has a new cell: this kernel cannot reset memory.peak")
    for count in (4, 8, 16, 32):
        name = f"begun-{uuid4().hex}"
        block = IN_CELL.format(cell=cell, name=name, count=count, code=textwrap.indent(code, "  "))
        with ThreadPoolExecutor(count) as threads:
            outputs = [*threads.map(output_of, [executor] * count, [block] * count)]
        for path in Path(executor.work_dir).glob(f"{name}*"):
            path.unlink()
        for output in outputs:
            if output.startswith(cell):
                return output.removeprefix(cell)
    raise AssertionError("no later block ran in the same cell")


def is_found_later(executor: SyncCodeExecutor, leave: str, find: str) -> bool:
    """Return True if what `leave` leaves is found later in the same cell."""
    cell, _, rest = checked_output(executor, f"{CELL}\n{leave}").partition("\n")
    assert rest == ""
    return MARK in run_later_in_cell(executor, cell, find)


@pytest.fixture(scope="module", params=["all protections", "without Landlock"])
def sandboxed(request: pytest.FixtureRequest) -> Iterator[SyncCodeExecutor]:
    # Without control groups, shared memory is refused under a memory limit.
    executor = sandbox(limits=Limits(memory_bytes=None))
    with without_landlock() if request.param == "without Landlock" else contextlib.nullcontext():
        executor.start()
    yield executor
    executor.stop()


@pytest.fixture(scope="module")
def unprotected() -> Iterator[SyncCodeExecutor]:
    with local() as executor:
        yield executor


def test_next_block_finds_nothing(sandboxed: SyncCodeExecutor) -> None:
    found = [
        name
        for name, (leave, find) in (LEFTOVERS | ENDED_WITH_PROCESS | SANDBOX_ONLY).items()
        if is_found_later(sandboxed, fill_in(leave, 4242), fill_in(find, 4242))
    ]
    assert found == []


def test_next_block_without_sandbox_finds_leftovers(unprotected: SyncCodeExecutor) -> None:
    faults = list[object]()
    for name, (leave, find) in LEFTOVERS.items():
        number = uuid4().int >> 97  # no other process of this machine has it
        left = output_of(unprotected, fill_in(leave, number))
        found = output_of(unprotected, fill_in(find, number)).strip()
        if (left, found) != ("", MARK):
            faults.append((name, left, found))
        Path(f"/tmp/cellblock-left-{number}").unlink(missing_ok=True)
    assert faults == []


def test_another_executor_finds_nothing(sandboxed: SyncCodeExecutor) -> None:
    leave = "\n".join(fill_in(leave, 77) for leave, _ in LEFTOVERS.values())
    waiting = f"{leave}\nopen('left', 'w')\nimport time; time.sleep(600)"
    with sandbox(limits=Limits(memory_bytes=None)) as other:
        with contextlib.closing(sandboxed.execute_stream([CodeBlock(waiting, "python")])) as events:
            next(iter(events))
            while not Path(sandboxed.work_dir, "left").exists():
                time.sleep(0.01)
            for name, (_, find) in LEFTOVERS.items():
                assert MARK not in output_of(other, fill_in(find, 77)), name
            assert "left" not in checked_output(other, "import os; print(os.listdir())")
        Path(sandboxed.work_dir, "left").unlink()


def test_next_block_is_not_affected_by_attacks_on_the_first_process(
    sandboxed: SyncCodeExecutor,
) -> None:
    healthy = """
import os, resource
print(os.getpriority(0, 0), len(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_DATA))
"""
    before, faults = checked_output(sandboxed, healthy), list[object]()
    for name, attack in AIMED_AT_INIT.items():
        cell = output_of(sandboxed, f"{CELL}\n{attack}").split("\n")[0]
        if (after := run_later_in_cell(sandboxed, cell, healthy).strip()) != before:
            faults.append((name, after))
    assert faults == []


def test_next_block_without_filter_is_affected_by_a_limit() -> None:
    executor = sandbox()
    with without_filter():
        executor.start()
    leave = "import resource; resource.prlimit(1, resource.RLIMIT_STACK, (1 << 22, 1 << 22))"
    find = (
        "import resource; "
        f"resource.getrlimit(resource.RLIMIT_STACK)[1] == 1 << 22 and print({MARK!r})"
    )
    assert is_found_later(executor, leave, find)
    executor.stop()


def test_file_beside_a_mount_below_tmp_is_removed(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given")
    policy = Policy(read_only=(Mount(str(tmp_path), "/tmp/a/b/given"),))
    with sandbox(policy=policy) as executor:
        find = (
            "import os; "
            f"'left' in os.listdir('/tmp/a') + os.listdir('/tmp/a/b') and print({MARK!r})"
        )
        for folder in ("/tmp/a", "/tmp/a/b"):
            assert not is_found_later(executor, f"open('{folder}/left', 'w')", find)
        assert checked_output(executor, "print(open('/tmp/a/b/given/given').read())") == "given"


KEEPS_TIMES = """
s = os.stat('/tmp'); open('/tmp/x', 'w'); os.utime('/tmp', ns=(s.st_atime_ns, s.st_mtime_ns))
"""
LEFT_LATE = [
    ("open('/tmp/x', 'w')", "'x' in os.listdir('/tmp')"),
    (KEEPS_TIMES, "'x' in os.listdir('/tmp')"),
    ("os.mkdir('/dev/shm/x')", "'x' in os.listdir('/dev/shm')"),
    ("os.chmod('/tmp', 0o700)", "os.stat('/tmp').st_mode & 0o777 == 0o700"),
]


@pytest.mark.slow
def test_leftovers_are_removed_after_many_blocks_without_leftovers() -> None:
    for leave, find in LEFT_LATE:
        with sandbox() as executor:
            # Several blocks in each cell: then it is known that a change alters the folders' times.
            for _ in range(12):
                checked_output(executor, "import time; time.sleep(0.02)")
            find = f"import os; {find} and print({MARK!r})"
            assert not is_found_later(executor, f"import os; {leave}", find), leave


def test_lock_on_stdin_is_released_when_a_block_has_ended() -> None:
    lock = """
import fcntl, os
file = os.open('held', os.O_CREAT | os.O_RDWR)
os.dup2(file, 0)
os.close(file)
fcntl.flock(0, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""
    with sandbox() as executor:
        # An ending process may hold the lock until the kernel has freed its memory.
        for _ in range(150):
            checked_output(executor, lock)
