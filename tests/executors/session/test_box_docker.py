"""The box of a session in a container, where the cell has no namespaces of its own."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest

from cellblock import DockerSessionCodeExecutor
from cellblock.runtime.box_orders import (
    BoxAnswer,
    EndCommands,
    ListCommands,
    ListFolder,
    ReadFile,
    RemovePath,
)
from tests.executors.session import session_image
from tests.executors.session.box_client import BoxClient, pieces
from tests.executors.session.live_session import LiveSession, forked
from tests.executors.session.test_box_files import write

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoxClient]:
    with pytest.MonkeyPatch.context() as patch:
        image = session_image.use_session_image(patch)
        executor = DockerSessionCodeExecutor(
            image, timeout=15, work_dir=tmp_path_factory.mktemp("work")
        )
        with LiveSession(executor) as live:
            yield BoxClient(live)


def left_of(box: BoxClient) -> list[str]:
    return sorted(process.text for process in box.ask(ListCommands).processes or ())


def test_a_command_says_its_output_and_exit_code(box: BoxClient) -> None:
    done = box.shell("pwd; cat; echo err >&2; exit 3", data=pieces([b"in\n"]))
    assert (done.stdout, done.stderr) == (b"/workspace\nin\n", b"err\n")
    assert done.answer.exit == 3
    assert box.run("no-such-program").answer.exit == 127
    assert box.run("true", cwd="none").answer.errno == errno.ENOENT
    assert box.output_of("exec ls /proc/self/fd").split() == ["0", "1", "2", "3"]


def test_a_command_that_stops_the_first_process_has_its_time_limit(box: BoxClient) -> None:
    first = "$(sed -n 's/^PPid://p' /proc/$PPID/status)"
    done = box.shell(f"kill -STOP {first} && sleep 100", seconds=1)
    assert (done.answer.exit, done.answer.is_timed_out) == (124, True)
    assert box.output_of("echo out") == "out"


def test_commands_files_and_blocks_see_the_same(box: BoxClient) -> None:
    data = bytes(range(256)) * 10_000
    assert write(box, "a/b.bin", data) == BoxAnswer()
    assert box.ask_with_data(ReadFile(box.number, "a/b.bin")) == (BoxAnswer(), data)
    assert box.output_of("wc -c <a/b.bin") == str(len(data))
    assert box.live.run_ok("print(len(open('a/b.bin', 'rb').read()))") == str(len(data))
    assert (box.live.folder / "a/b.bin").read_bytes() == data
    assert [entry.name for entry in box.ask(ListFolder, "a").entries or ()] == ["b.bin"]
    assert box.ask(RemovePath, "/workspace").errno == errno.ENOTSUP


def test_a_time_limit_kills_the_session_of_processes(box: BoxClient) -> None:
    detach = "import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"
    text = 'echo before; sleep 100 & python3 -c "$0" sleep 103 & sleep 104'
    done = box.run("sh", "-c", text, detach, seconds=2)
    assert done.stderr == b""
    assert (done.stdout, done.answer.exit, done.answer.is_timed_out) == (b"before\n", 124, True)
    assert left_of(box) == ["sleep 103"]
    assert box.ask(EndCommands) == BoxAnswer()
    assert left_of(box) == []


def test_a_crash_of_the_interpreter_ends_no_commands(box: BoxClient) -> None:
    box.live.run_ok("kept = 41")
    box.shell("sleep 60 & exit")
    box.live.run("import os, subprocess; subprocess.Popen(['sleep', '61']); os._exit(3)")
    assert left_of(box) == ["sleep 60"]
    assert box.live.run_ok("kept") == "41"
    assert box.ask(EndCommands) == BoxAnswer()


def test_a_branch_has_a_box_in_its_own_folder(box: BoxClient) -> None:
    with forked(box.live) as (branch,):
        other = BoxClient(branch)
        assert other.output_of("echo branch >file; pwd; cat file").endswith("\nbranch")
        assert (branch.folder / "file").read_text() == "branch\n"
        assert not (box.live.folder / "file").exists()
        other.shell("sleep 70 & exit")
        assert (left_of(other), left_of(box)) == (["sleep 70"], [])
        assert other.ask(EndCommands) == BoxAnswer()


def test_commands_end_with_the_branch(box: BoxClient) -> None:
    with forked(box.live) as (branch,):
        BoxClient(branch).shell("sleep 71 & exit")
    assert "sleep 71" not in box.output_of("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
