"""The box of a session in a container, where the cell has no namespaces of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cellblock import DockerSessionCodeExecutor
from cellblock.runtime.box_orders import (
    BoxAnswer,
    EndCommands,
)
from tests.executors.session import session_image
from tests.executors.session.box_client import BoxClient
from tests.executors.session.live_session import LiveSession, forked

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoxClient]:
    with pytest.MonkeyPatch.context() as patch:
        image = session_image.use_session_image(patch)
        executor = DockerSessionCodeExecutor(
            image, timeout=15, work_dir=tmp_path_factory.mktemp("work")
        )
        with LiveSession(executor) as live:
            yield BoxClient(live)


def test_a_command_has_no_descriptor_of_ours(box: BoxClient) -> None:
    assert box.output_of("exec ls /proc/self/fd").split() == ["0", "1", "2", "3"]


def test_a_command_that_stops_the_first_process_has_its_time_limit(box: BoxClient) -> None:
    first = "$(sed -n 's/^PPid://p' /proc/$PPID/status)"
    done = box.shell(f"kill -STOP {first} && sleep 100", seconds=1)
    assert (done.answer.exit, done.answer.is_timed_out) == (124, True)
    assert box.output_of("echo out") == "out"


def test_a_crash_of_the_interpreter_ends_no_commands(box: BoxClient) -> None:
    box.live.run_ok("kept = 41")
    box.shell("sleep 60 & exit")
    box.live.run("import os, subprocess; subprocess.Popen(['sleep', '61']); os._exit(3)")
    assert box.left() == ["sleep 60"]
    assert box.live.run_ok("kept") == "41"
    assert box.ask(EndCommands) == BoxAnswer()


def test_a_branch_has_a_box_in_its_own_folder(box: BoxClient) -> None:
    with forked(box.live) as (branch,):
        other = BoxClient(branch)
        assert other.output_of("echo branch >file; pwd; cat file").endswith("\nbranch")
        assert (branch.folder / "file").read_text() == "branch\n"
        assert not (box.live.folder / "file").exists()
        other.shell("sleep 70 & exit")
        assert (other.left(), box.left()) == (["sleep 70"], [])
        assert other.ask(EndCommands) == BoxAnswer()


def test_commands_end_with_the_branch(box: BoxClient) -> None:
    with forked(box.live) as (branch,):
        BoxClient(branch).shell("sleep 71 & exit")
    assert "sleep 71" not in box.output_of("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
