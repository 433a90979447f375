"""What several files of tests ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import SandboxSessionServer
from live import Live, session


@pytest.fixture
def live(shared: SandboxSessionServer, tmp_path: Path) -> Iterator[Live]:
    """Give a session of the file's own server, in a work folder beside which there is room."""
    (tmp_path / "work").mkdir()
    with session(shared, tmp_path / "work") as one:
        yield one
