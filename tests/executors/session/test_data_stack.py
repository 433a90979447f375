"""What analysts use in sessions is in a copy of the session, and still works there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import CheckpointError, Limits, SandboxSessionServer
from tests.executors.session.data_stack import PACKAGES, USES, Use
from tests.executors.session.live_session import open_server, open_session

pytestmark = [pytest.mark.pythons, pytest.mark.network, pytest.mark.slow]

_CRASH = "import os; os._exit(1)"


@pytest.fixture(scope="module")
def data_server() -> Iterator[SandboxSessionServer]:
    """Yield a server whose sessions have the packages of the uses."""
    limits = Limits(memory_bytes=None, processes=300, tmp_bytes=256 << 20, checkpoints=6)
    with open_server(packages=PACKAGES, limits=limits) as running:
        yield running


@pytest.mark.parametrize("use", USES, ids=[use.name for use in USES])
def test_a_crash_after_it(data_server: SandboxSessionServer, use: Use) -> None:
    with open_session(data_server, timeout=100) as live:
        live.run_ok(use.setup)
        if not use.copied:
            with pytest.raises(CheckpointError, match="cannot be copied because it has"):
                live.checkpoint()
            live.run_ok(use.check)
            return
        for number in range(3):
            live.run_ok(f"number = {number}")
            ended = live.run(_CRASH)
            assert (ended.session_restored, ended.lost_blocks) == (True, 0), ended.notice
            assert live.run_ok("number") == str(number)
        live.run_ok(use.check)
