"""The CPU time of a session's block is that of all processes that it has started."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import Limits, SandboxSessionServer
from tests.executors.session.live_session import LiveSession, open_session

pytestmark = pytest.mark.depends_on_user

# A child that uses one CPU second. Nobody waits for it.
CHILD = """import os, signal, time
if os.fork() == 0:
    while time.process_time() < {}: pass
    os._exit(0)
"""
WAIT_FOR_END = "os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)"
BOMB = """import os
while True:
    try:
        if os.fork() == 0:
            while True: pass
    except OSError: pass"""


@pytest.fixture
def patient(shared: SandboxSessionServer) -> Iterator[LiveSession]:
    """Yield a session whose limit of time does not matter on a busy machine."""
    with open_session(shared, timeout=100) as live:
        yield live


def cpu_seconds(live: LiveSession, code: str) -> float:
    (block,) = live.run(code).blocks
    assert block.outcome == "ok"
    return block.usage.cpu_seconds


def test_children_that_nobody_waits_for_count_once(patient: LiveSession) -> None:
    assert cpu_seconds(patient, "1") < 0.5
    # The session's own process has used this much already when it forks.
    assert cpu_seconds(patient, CHILD.format("1") + WAIT_FOR_END) > 0.7
    assert cpu_seconds(patient, "2") < 0.5
    assert cpu_seconds(patient, "os.wait()") < 0.5
    assert cpu_seconds(patient, "3") < 0.5


@pytest.mark.slow
def test_children_that_are_killed_count(patient: LiveSession) -> None:
    code = CHILD.format("60") + (
        "child = open(f'/proc/{os.getpid()}/task/{os.getpid()}/children').read().split()[-1]\n"
        "while float(open(f'/proc/{child}/stat').read().rpartition(')')[2].split()[11]) < 100:\n"
        "    time.sleep(0.01)"
    )
    assert cpu_seconds(patient, code) > 0.9


def test_a_fork_bomb_hardly_overruns_its_limit() -> None:
    limits = Limits(cpu_seconds=1, processes=64)
    with open_session(None, timeout=100, limits=limits) as live:
        live.run_ok("x = 1")
        result = live.run(BOMB)
        assert (result.outcome, result.limit) == ("timeout", "cpu_seconds")
        assert result.usage.cpu_seconds < 1.5
        assert live.run_ok("x") == "1"
