"""A live session in a container whose memory runs out."""

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


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        yield session_image.prepare(patch)


def test_memory_that_runs_out_is_named_and_the_session_is_restored(image: str) -> None:
    with session(image, limits=Limits(memory_bytes=200 << 20)) as live:
        live.done("x = 1")
        result = live.run("y = []\nwhile True: y.append(bytearray(1 << 22))")
        assert (result.exit_code, result.outcome, result.session_restored) == (
            137,
            "out_of_memory",
            True,
        ), result
        assert live.done("x") == "1"


# The server is held up, so that the kernel comes first.
MEMORY_RUNS_OUT = """import os, subprocess
ancestors = [os.getpid()]
while len(ancestors) < 4:
    ancestors.append(int(open(f"/proc/{ancestors[-1]}/stat").read().rpartition(")")[2].split()[1]))
server = ancestors[-1]
go_on = f"echo 0 > /proc/self/oom_score_adj; sleep 1; kill -CONT {server}"
subprocess.Popen(["sh", "-c", go_on], start_new_session=True).poll()
os.kill(server, 19)
y = []
while True: y.append(b"x" * (1 << 22))"""
UNTIL_THERE_IS_A_RESERVE = """import glob, os, time
def held(link):
    try:
        return os.stat(link).st_blocks * 512 if os.readlink(link).startswith("/memfd:reserve") else 0
    except OSError:
        return 0
while sum(map(held, glob.glob("/proc/[0-9]*/fd/*"))) < 8 << 20: time.sleep(0.01)"""
# Whoever looks at the memory of a process holds it, until he has seen all.
LOOK = """import sys
while True:
    for pid in sys.argv[1:]:
        try: open(f"/proc/{pid}/smaps_rollup").read()
        except OSError: pass"""


def test_memory_that_is_given_back_late_costs_none_but_the_session(image: str) -> None:
    with (
        session(image, limits=Limits(memory_bytes=128 << 20)) as live,
        contextlib.ExitStack() as ending,
    ):
        live.done("x = 1")
        live.done(UNTIL_THERE_IS_A_RESERVE)
        pids = [
            line.split()[1]
            for line in docker_engine.running().docker("top", container(live)).splitlines()[1:]
        ]
        if not all(os.access(f"/proc/{pid}/smaps_rollup", os.R_OK) for pid in pids):
            pytest.skip("the memory of the engine's processes cannot be looked at")
        for _ in range(3):
            looker = ending.enter_context(subprocess.Popen([sys.executable, "-c", LOOK, *pids]))
            ending.callback(looker.kill)
        result = live.run(MEMORY_RUNS_OUT)
        assert (result.exit_code, result.outcome, result.session_restored) == (
            137,
            "out_of_memory",
            True,
        ), result
        assert live.done("x") == "1"
