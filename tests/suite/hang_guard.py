"""A hang guard that a busy machine does not set off: time limits of tests stretch with the load."""

from __future__ import annotations

import os
from typing import Any

import pytest
import pytest_timeout


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """Multiply the time limit by the number of processes that want each processor."""
    wanted = os.getloadavg()[0] / (os.cpu_count() or 1)
    stretched = settings._replace(timeout=settings.timeout * max(1.0, wanted))
    return pytest_timeout.pytest_timeout_set_timer(item, stretched)  # pyright: ignore[reportUnknownMemberType] - untyped
