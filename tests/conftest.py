"""What several files of tests ask for, and which of them run in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from cellblock import SandboxSessionServer
from tests.executors.session.live_session import Live, session


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Say how tests are given out to processes."""
    return _Together(config, log)


class _Together(LoadScopeScheduling):
    """Tests of one file stay together, for what they share is made once; and so do the checks of one executor.

    One process runs all tests that want Docker's engine: it starts it, and ends it after the last of them.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        if "docker" in f"{file} {name}":
            return "Docker's engine"
        return (
            f"{file} {name.partition('[')[2].partition('-')[0]}"
            if "test_conformance" in file
            else file
        )


@pytest.fixture
def live(shared: SandboxSessionServer, tmp_path: Path) -> Iterator[Live]:
    """Give a session of the file's own server, in a work folder beside which there is room."""
    (tmp_path / "work").mkdir()
    with session(shared, tmp_path / "work") as one:
        yield one
