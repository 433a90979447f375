"""A prompt in a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal_process import PROMPT, TerminalCommand


@pytest.fixture
def terminal(live: None) -> Iterator[TerminalCommand]:
    """Yield a terminal with `cellblock repl`."""
    with TerminalCommand("repl") as terminal:
        terminal.wait_for(PROMPT)
        yield terminal


@pytest.fixture
def live(cwd: Path, temporary: Path, sandbox: None) -> None:
    """Skip the test where there are no sessions."""
    pytest.importorskip("IPython", reason="IPython is not installed: the extra `session` brings it")
