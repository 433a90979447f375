"""A server's control groups are made by it, removed by it, and swept away after it when it was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import CodeBlock, Limits, SandboxCommandLineCodeExecutor, sync
from cellblock.cli.clean import _clean_groups
from cellblock.runtime.linux import process_tree
from cellblock.runtime.server.cgroups import sweep
from cellblock.sandbox import cgroups

FOLDERS = cgroups.find().folders
pytestmark = pytest.mark.skipif(not FOLDERS, reason="control groups cannot be made here")
LIMITS = Limits(memory_bytes=256 << 20, processes=100)
OWNER = """
import asyncio, sys
from cellblock import CodeBlock, Limits, LocalCommandLineCodeExecutor
async def main():
    executor = LocalCommandLineCodeExecutor(work_dir=sys.argv[1], limits=Limits(processes=100, memory_bytes=1 << 28))
    await executor.start()
    await executor.execute_code_blocks([CodeBlock("1", "python")])
    print(executor._connection.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def parents(pid: int) -> list[str]:
    """List the groups of the server with process id `pid`."""
    return [
        f"{folder}/{name}"
        for folder in FOLDERS
        for name in os.listdir(folder)
        if f"-{pid}-" in name
    ]


def wait_for_end(pid: int) -> None:
    """Wait until the cells of the server `pid` are gone with it."""
    deadline = time.monotonic() + 10
    while process_tree.began(pid) or any(
        Path(path).read_text() for group in parents(pid) for path in _lists(group)
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lists(group: str) -> Iterator[str]:
    for folder, _, _ in os.walk(group):
        yield f"{folder}/cgroup.procs"


def test_the_next_server_removes_what_a_killed_one_left() -> None:
    async def main() -> None:
        async with SandboxCommandLineCodeExecutor(limits=LIMITS) as executor:
            assert executor._connection is not None
            killed = executor._connection.pid
            await executor.execute_code_blocks([CodeBlock("1", "python")])
            assert parents(killed)
            os.kill(killed, signal.SIGKILL)
            wait_for_end(killed)
            await executor.restart()
            assert not parents(killed)
            assert parents(living := executor._connection.pid)
            async with SandboxCommandLineCodeExecutor(limits=LIMITS):
                assert parents(living)
        assert not parents(living)

    asyncio.run(main())


def test_clean_removes_what_a_killed_server_of_a_killed_owner_left(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        server = int(owner.stdout.readline())
        assert parents(server)
        owner.send_signal(signal.SIGSTOP)  # it must not have time to do anything about it
        os.kill(server, signal.SIGKILL)
        owner.kill()
    wait_for_end(server)
    _clean_groups()
    assert not parents(server)


def test_groups_of_the_living_of_others_and_of_another_process_namespace_stay() -> None:
    dead, alive = (
        subprocess.run(
            [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
        ),
        os.getpid(),
    )
    own = os.stat("/proc/self/ns/pid").st_ino
    names = {
        "living": f"cellblock-{own}-{alive}-{process_tree.began(alive)}",
        "another namespace's": f"cellblock-{own + 1}-{int(dead.stdout)}-1",
        "of no process": f"cellblock-{own}-x-1",
        "somebody else's": f"somebody-{own}-{int(dead.stdout)}-1",
        "dead": f"cellblock-{own}-{int(dead.stdout)}-1",
        "dead, its number taken": f"cellblock-{own}-{alive}-1",
    }
    for name in names.values():
        os.makedirs(f"{FOLDERS[0]}/{name}/cell-1")
    try:
        sweep(FOLDERS[0])
        left = {case for case, name in names.items() if os.path.exists(f"{FOLDERS[0]}/{name}")}
        assert left == {"living", "another namespace's", "of no process", "somebody else's"}
    finally:
        for name in names.values():
            if os.path.exists(f"{FOLDERS[0]}/{name}"):
                os.rmdir(f"{FOLDERS[0]}/{name}/cell-1")
                os.rmdir(f"{FOLDERS[0]}/{name}")


def test_a_group_that_is_still_in_use_stays_and_leaves_nothing_open(tmp_path: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    used = (
        tmp_path
        / f"cellblock-{os.stat('/proc/self/ns/pid').st_ino}-{int(dead.stdout)}-1"
        / "cell-1"
    )
    (used / "what keeps it").mkdir(parents=True)
    assert (
        sweep(str(tmp_path)) == []
    )  # an iterator that was left open would be an error after the test
    assert used.exists()


def test_more_processes_than_a_machine_can_have_are_no_limit() -> None:
    with sync.SandboxCommandLineCodeExecutor(limits=Limits(processes=5_000_000)) as executor:
        assert executor.execute_code_blocks([CodeBlock("print('hi')", "python")]).output == "hi\n"
