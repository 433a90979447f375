"""A live session in a container that runs out of memory."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cellblock import Limits
from tests.containers import docker_engine
from tests.executors.session import session_image
from tests.executors.session.test_docker import container, session

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        yield session_image.use_session_image(patch)


def test_out_of_memory_is_reported_and_the_session_is_restored(image: str) -> None:
    with session(image, limits=Limits(memory_bytes=200 << 20)) as live:
        live.run_ok("x = 1")
        result = live.run("y = []\nwhile True: y.append(bytearray(1 << 22))")
        assert (result.exit_code, result.outcome, result.session_restored) == (
            137,
            "out_of_memory",
            True,
        ), result
        assert live.run_ok("x") == "1"


# The server is stopped, so that the kernel's OOM killer acts before it.
MEMORY_RUNS_OUT = """import os, select
ancestors = [os.getpid()]
while len(ancestors) < 4:
    ancestors.append(int(open(f"/proc/{ancestors[-1]}/stat").read().rpartition(")")[2].split()[1]))
server, this = ancestors[-1], select.poll()
this.register(os.pidfd_open(os.getpid()))
if os.fork() == 0:
    os.setsid()
    open("/proc/self/oom_score_adj", "w").write("0")
    this.poll()
    os.kill(server, 18)
    os._exit(0)
os.kill(server, 19)
y = []
while True: y.append(b"x" * (1 << 22))"""
WAIT_FOR_OOM_RESERVE = """import glob, os, time
def held(link):
    try:
        is_reserve = os.readlink(link).startswith("/memfd:reserve")
        return os.stat(link).st_blocks * 512 if is_reserve else 0
    except OSError:
        return 0
while sum(map(held, glob.glob("/proc/[0-9]*/fd/*"))) < 8 << 20: time.sleep(0.01)"""
# A process that reads smaps_rollup keeps the memory of the other process alive meanwhile.
READ_MEMORY = """import sys
while True:
    for pid in sys.argv[1:]:
        try: open(f"/proc/{pid}/smaps_rollup").read()
        except OSError: pass"""


def test_memory_that_is_freed_late_only_affects_the_session(image: str) -> None:
    with (
        session(image, limits=Limits(memory_bytes=128 << 20)) as live,
        contextlib.ExitStack() as stack,
    ):
        live.run_ok("x = 1")
        live.run_ok(WAIT_FOR_OOM_RESERVE)
        pids = [
            line.split()[1]
            for line in docker_engine.shared_engine()
            .docker("top", container(live))
            .splitlines()[1:]
        ]
        if not all(os.access(f"/proc/{pid}/smaps_rollup", os.R_OK) for pid in pids):
            pytest.skip("the memory maps of the engine's processes are not readable")
        for _ in range(3):
            reader = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", READ_MEMORY, *pids])
            )
            stack.callback(reader.kill)
        result = live.run(MEMORY_RUNS_OUT)
        assert (result.exit_code, result.outcome, result.session_restored) == (
            137,
            "out_of_memory",
            True,
        ), result
        assert live.run_ok("x") == "1"
