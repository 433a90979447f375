"""In a container, code that stops the first process of its session holds up nothing."""

from __future__ import annotations

import pytest

from tests.executors.session import session_image
from tests.executors.session.test_docker import session

pytestmark = [pytest.mark.engine]


def test_a_stopped_first_process_holds_up_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    with session(session_image.use_session_image(monkeypatch)) as live:
        live.run_ok("import os, subprocess\nx = 1")
        live.run_ok("subprocess.Popen(['sleep', '60'])\nos.kill(os.getppid(), 19)")
        assert live.run("os.kill(os.getpid(), 9)").session_restored
        assert live.run_ok("x") == "1"
