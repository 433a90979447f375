"""The commands of a session's box have a root file system of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import CodeBlock, SandboxSessionCodeExecutor
from cellblock.runtime.box_orders import ReadFile
from cellblock.sandbox.probe import unavailable_reason
from tests.executors.session.box_client import BoxClient
from tests.executors.session.live_session import LiveSession, run_async
from tests.sandbox.images.small_root import make_root

pytestmark = pytest.mark.depends_on_user


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoxClient]:
    if reason := unavailable_reason():
        pytest.skip(f"the sandbox is not available: {reason}")
    executor = SandboxSessionCodeExecutor(60, tmp_path_factory.mktemp("work"))
    executor.place.root_source = make_root(tmp_path_factory.mktemp("root"))
    run_async(executor.start())
    yield BoxClient(LiveSession(executor))
    run_async(executor.stop())


def test_commands_and_files_are_in_the_root(box: BoxClient) -> None:
    assert box.output_of("cat /etc/own; pwd; id -un") == "of this root\n/workspace\ncell"
    _, data = box.ask_with_data(ReadFile(box.number, "/etc/own"))
    assert data == b"of this root\n"


def test_the_live_python_stays_in_the_sandbox(box: BoxClient) -> None:
    code = "import os; print(os.path.exists('/etc/own'), os.path.exists('/opt/cellblock'))"
    result = run_async(box.live.executor.execute_code_blocks([CodeBlock(code, "python")]))
    assert result.output == "False True\n"
    assert box.shell("test -e /opt/cellblock").answer.exit == 1


def test_commands_cannot_mount_or_change_their_root(box: BoxClient) -> None:
    status = box.output_of("cat /proc/self/status")
    assert "CapEff:\t0000000000000000" in status
    assert "CapBnd:\t0000000000000000" in status or "NoNewPrivs:\t1" in status
    points = [line.split()[4] for line in box.output_of("cat /proc/self/mountinfo").splitlines()]
    assert "/" in points
    assert not [point for point in points if point.startswith(("/opt", "/run", "/usr", "/etc"))]
