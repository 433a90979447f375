"""What several files of tests ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import SandboxSessionServer
from live import Live, session

unless_all = pytest.mark.skipif(
    os.environ.get("CELLBLOCK_TESTS") != "all", reason="takes minutes: CELLBLOCK_TESTS=all asks it"
)


@pytest.fixture
def live(shared: SandboxSessionServer, tmp_path: Path) -> Iterator[Live]:
    """Give a session of the file's own server, in a work folder beside which there is room."""
    (tmp_path / "work").mkdir()
    with session(shared, tmp_path / "work") as one:
        yield one
