"""A server removes its control groups at its end; if it was killed, another one removes them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cellblock import CodeBlock, Limits, SandboxCommandLineCodeExecutor, sync
from cellblock.cli.clean import _remove_control_groups
from cellblock.runtime.linux import process_tree
from cellblock.runtime.server.cgroups import remove_orphans
from cellblock.sandbox import cgroups

FOLDERS = cgroups.find_cgroups().folders
pytestmark = [
    pytest.mark.depends_on_user,
    pytest.mark.skipif(not FOLDERS, reason="control groups cannot be made here"),
]
LIMITS = Limits(memory_bytes=256 << 20, processes=100)
OWNER = """
import asyncio, sys
from cellblock import CodeBlock, Limits, LocalCommandLineCodeExecutor
async def main():
    limits = Limits(processes=100, memory_bytes=1 << 28)
    executor = LocalCommandLineCodeExecutor(work_dir=sys.argv[1], limits=limits)
    await executor.start()
    await executor.execute_code_blocks([CodeBlock("1", "python")])
    print(executor.place.connection.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def cgroups_of(pid: int) -> list[str]:
    """Return the control groups of the server with process ID `pid`."""
    own = f"cellblock-{os.stat('/proc/self/ns/pid').st_ino}-{pid}-"
    return [
        f"{folder}/{name}"
        for folder in FOLDERS
        for name in os.listdir(folder)
        if name.startswith(own)
    ]


def wait_for_end(pid: int) -> None:
    """Wait until the server `pid` and all its cells have ended."""
    while process_tree.start_time(pid) or any(map(_processes_in, cgroups_of(pid))):
        time.sleep(0.01)


def _processes_in(group: str) -> str:
    found = ""
    for folder, _, _ in os.walk(group):
        with contextlib.suppress(OSError):  # another server removes it at this moment
            found += Path(folder, "cgroup.procs").read_text()
    return found


async def test_the_next_server_removes_the_groups_of_a_killed_one() -> None:
    async with SandboxCommandLineCodeExecutor(limits=LIMITS) as executor:
        assert executor.place.connection is not None
        killed = executor.place.connection.pid
        await executor.execute_code_blocks([CodeBlock("1", "python")])
        assert cgroups_of(killed)
        os.kill(killed, signal.SIGKILL)
        wait_for_end(killed)
        await executor.restart()
        assert not cgroups_of(killed)
        assert cgroups_of(living := executor.place.connection.pid)
        async with SandboxCommandLineCodeExecutor(limits=LIMITS):
            assert cgroups_of(living)
    assert not cgroups_of(living)


def test_clean_removes_the_groups_of_a_server_that_was_killed_with_its_owner(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        server = int(owner.stdout.readline())
        assert cgroups_of(server)
        owner.send_signal(signal.SIGSTOP)  # so that it cannot react
        os.kill(server, signal.SIGKILL)
        owner.kill()
    wait_for_end(server)
    _remove_control_groups()
    assert not cgroups_of(server)


def test_only_groups_of_dead_servers_of_this_process_namespace_are_removed() -> None:
    dead, alive = (
        subprocess.run(
            [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
        ),
        os.getpid(),
    )
    own = os.stat("/proc/self/ns/pid").st_ino
    names = {
        "alive": f"cellblock-{own}-{alive}-{process_tree.start_time(alive)}",
        "of another namespace": f"cellblock-{own + 1}-{int(dead.stdout)}-1",
        "of no process": f"cellblock-{own}-x-1",
        "of another program": f"other-{own}-{int(dead.stdout)}-1",
        "dead": f"cellblock-{own}-{int(dead.stdout)}-1",
        "dead, process ID reused": f"cellblock-{own}-{alive}-1",
    }
    # Servers of other processes remove what is dead in `FOLDERS[0]` itself.
    folder = tempfile.mkdtemp(prefix="test-", dir=FOLDERS[0])
    try:
        for name in names.values():
            os.makedirs(f"{folder}/{name}/cell-1")
        remove_orphans(folder)
        left = {case for case, name in names.items() if os.path.exists(f"{folder}/{name}")}
        assert left == {"alive", "of another namespace", "of no process", "of another program"}
    finally:
        for path, _, _ in os.walk(folder, topdown=False):
            os.rmdir(path)


def test_a_group_that_is_still_in_use_stays(tmp_path: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    used = (
        tmp_path
        / f"cellblock-{os.stat('/proc/self/ns/pid').st_ino}-{int(dead.stdout)}-1"
        / "cell-1"
    )
    (used / "in use").mkdir(parents=True)
    # If it left an iterator open, a warning would fail the test.
    assert remove_orphans(str(tmp_path)) == []
    assert used.exists()


def test_a_process_limit_above_the_maximum_of_the_kernel_is_accepted() -> None:
    with sync.SandboxCommandLineCodeExecutor(limits=Limits(processes=5_000_000)) as executor:
        assert executor.execute_code_blocks([CodeBlock("print('hi')", "python")]).output == "hi\n"
