"""The sandbox in which the tests of a file judge programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.batch.judging import Judging, open_judging
from tests.executors.session.live_session import skip_without_sandbox


@pytest.fixture(scope="module")
def judging() -> Iterator[Judging]:
    """Yield a sandbox for programs."""
    skip_without_sandbox()
    with open_judging() as opened:
        yield opened
