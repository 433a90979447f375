"""The limits of a session hold for the commands of its box."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import Limits, SandboxSessionServer
from cellblock.sandbox import cgroups
from tests.executors.session.box_client import BoxClient
from tests.executors.session.live_session import open_server, open_session

pytestmark = pytest.mark.depends_on_user

MIB = 1 << 20


@pytest.fixture
def box(strict_server: SandboxSessionServer) -> Iterator[BoxClient]:
    with open_session(strict_server) as live:
        yield BoxClient(live)


def test_a_command_that_needs_too_much_memory_is_ended(box: BoxClient) -> None:
    box.live.run_ok("kept = 41")
    code = f"import time\nfilled = b'x' * {400 * MIB}\ntime.sleep(5)"
    answer = box.run("python3", "-c", code).answer
    assert (answer.exit, answer.limit) == (137, "memory_bytes")
    # The next block is not blamed for it.
    assert box.live.run_ok("kept") == "41"
    assert box.run("sh", "-c", "kill -9 $$").answer.limit is None


def test_memory_is_limited_without_control_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "find_cgroups", lambda: cgroups.CgroupSupport(0, "none in a test"))
    limits = Limits(memory_bytes=256 * MIB)
    with open_server(limits=limits) as server, open_session(server) as live:
        box = BoxClient(live)
        live.run_ok("kept = 41")
        code = f"import time\nfilled = b'x' * {400 * MIB}\ntime.sleep(20)"
        answer = box.run("python3", "-c", code).answer
        assert (answer.exit, answer.limit) == (137, "memory_bytes")
        assert live.run_ok("kept") == "41"


def test_commands_that_write_too_much_are_ended() -> None:
    limits = Limits(written_bytes=32 * MIB)
    with open_server(limits=limits) as server, open_session(server) as live:
        box = BoxClient(live)
        live.run_ok("kept = 41")
        answer = box.shell(f"head -c {64 * MIB} /dev/zero >large; sleep 100").answer
        assert (answer.exit, answer.limit) == (137, "written_bytes")
        assert box.shell("rm large").answer.exit == 0
        assert live.run_ok("kept") == "41"


def test_a_command_cannot_start_too_many_processes(box: BoxClient) -> None:
    text = "for i in $(seq 200); do sleep 100 & done; echo done"
    done = box.shell(text, seconds=10)
    assert b"done" not in done.stdout or b"fork" in done.stderr
    assert done.answer.exit != 0 or b"fork" in done.stderr
