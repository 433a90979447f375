"""A session whose code holds all descriptors says so, and goes on when they are closed."""

from __future__ import annotations

import pytest

from cellblock import CodeBlock, Limits, sync
from cellblock.errors import CheckpointError
from tests.executors.session.live_session import skip_without_sandbox

FILLS = """
import os
held = []
try:
    while True: held.append(os.open("/dev/null", 0))
except OSError: pass
"""


def test_a_checkpoint_needs_a_free_descriptor() -> None:
    skip_without_sandbox()
    with sync.SandboxSessionCodeExecutor(limits=Limits(open_files=200)) as session:
        session.execute_code_blocks([CodeBlock(FILLS, "python")])
        with pytest.raises(CheckpointError, match="Too many files are open in the session"):
            session.checkpoint("a")
        close = "print(len(held) > 100)\nfor each in held: os.close(each)\nheld.clear()"
        assert "True" in session.execute_code_blocks([CodeBlock(close, "python")]).output
        session.checkpoint("a")
