"""Shared fixtures, and the rule that says which tests run in the same process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from cellblock import SandboxSessionServer, sync
from cellblock.sandbox.probe import unavailable_reason
from tests.executors.session.live_session import LiveSession, open_session

pytest_plugins = [
    "tests.suite.coroutines",
    "tests.suite.hang_guard",
    "tests.suite.price",
    "tests.suite.retry_alone",
    "tests.suite.tiers",
    "tests.suite.unretrieved_errors",
]

# A grammar of URLs, whose import takes two seconds in each process. jsonschema does without it.
sys.modules["rfc3987_syntax"] = None  # pyright: ignore[reportArgumentType] - makes imports fail

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile(
    "cellblock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("cellblock")


def pytest_configure() -> None:
    """Handle Ctrl-C, also in what tests start: background jobs of a shell inherit it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Return the scheduler that assigns tests to processes."""
    return _Together(config, log)


# In each of these folders, the tests that need Docker take minutes.
_ENGINE_FOLDERS = (
    "tests/containers",
    "tests/executors/command_line",
    "tests/executors/jupyter",
    "tests/server",
)


class _Together(LoadScopeScheduling):
    """Run the tests of one file in one process, because they share fixtures.

    The checks of one executor, or of one home of boxes, also run in one process. So do all other
    tests of one folder that need Docker: they share an engine, and most of their time is waiting.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        if "test_conformance" in file:
            test, _, parameters = name.partition("[")
            subject, dash, _ = parameters.partition("-")
            return f"{file} {subject if dash else test}"
        if "docker" in f"{file} {name}" or file.startswith("tests/containers/"):
            return f"Docker's engine {next(filter(file.startswith, _ENGINE_FOLDERS), '')}"
        return file


@pytest.fixture
def live(shared: SandboxSessionServer, tmp_path: Path) -> Iterator[LiveSession]:
    """Yield a session on the test file's server. Its work folder is `tmp_path / "work"`."""
    (tmp_path / "work").mkdir()
    with open_session(shared, tmp_path / "work") as one:
        yield one


@pytest.fixture(scope="module")
def kept_servers() -> Iterator[None]:
    """Keep the servers that sandbox executors and sessions with the default options join.

    Starting a server takes most of the time of a short test. It is not for tests that change how
    servers start, or count them.
    """
    if unavailable_reason():
        yield
        return
    with sync.SandboxCommandLineCodeExecutor(), sync.SandboxSessionCodeExecutor():
        yield
