"""Children that a block forks: they end with the block's code, and only the block is reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import SandboxSessionServer
from tests.executors.session.live_session import LiveSession, open_server

FORK = "import os\nchild = os.fork()\n"
WAIT = "print('status', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\nx = 1"
IN_CHILD = {
    "raises": ("raise ValueError('in the child')", 1),
    "raises SystemExit": ("raise SystemExit(3)", 3),
    "reaches the end": ("print('in the child')", 0),
    "is interrupted": ("raise KeyboardInterrupt", 130),
    "shows a value in IPython's way": ("await __import__('asyncio').sleep(0)", 0),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[SandboxSessionServer]:
    with open_server() as running:
        yield running


@pytest.mark.parametrize("name", IN_CHILD)
def test_only_the_blocks_own_end_counts(name: str, live: LiveSession) -> None:
    code, status = IN_CHILD[name]
    result = live.run(
        f"{FORK}if child == 0:\n    {code}\nelse:\n    {WAIT.replace(chr(10), chr(10) + '    ')}"
    )
    assert result.exit_code == 0, result
    assert result.output.splitlines()[-1] == f"status {status}"
    assert ("in the child" in result.output) == ("in the child" in code)
    assert live.run_ok("x") == "1"
