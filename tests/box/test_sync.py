"""The synchronous boxes: every method, from plain code."""

from __future__ import annotations

import inspect
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellblock import BoxGone, CommandResult, Sandbox, sync
from cellblock.box.base import Box
from cellblock.box.files import Files
from cellblock.box.process import Process
from cellblock.box.shell import ShellSession
from cellblock.sync import box as sync_box


@pytest.fixture(scope="module")
def box(needs_sandbox: None) -> Iterator[sync.Sandbox]:
    with sync.Sandbox() as made:
        yield made


def test_every_public_name_is_there_without_await() -> None:
    for kind in (Box, Files, Process, ShellSession):
        face: type[object] = getattr(sync_box, kind.__name__)
        for name in (name for name in vars(kind) if not name.startswith("_")):
            shown = inspect.getattr_static(face, name)
            assert not inspect.iscoroutinefunction(shown), name
            if callable(shown):
                theirs = inspect.signature(getattr(kind, name)).parameters
                assert [*inspect.signature(shown).parameters] == [*theirs], name


def test_commands_files_and_python_are_used_without_await(
    box: sync.Sandbox, tmp_path: Path
) -> None:
    box.files.write("file", "text")
    assert box.exec(["cat", "file"]).stdout == b"text"
    assert box.run_code("open('file').read()").output == "'text'\n"
    assert box.session.get("__name__") == "__main__"
    assert [entry.name for entry in box.files.list()] == ["file"]
    (tmp_path / "sent").write_text("sent")
    box.files.upload(tmp_path, "folder")
    box.files.upload(io.BytesIO(b"stream"), "folder/stream")
    box.files.download("folder", tmp_path / "back")
    assert (tmp_path / "back" / "stream").read_bytes() == b"stream"
    assert box.inner_work_dir == "/workspace"
    assert (box.work_dir / "folder" / "sent").read_text() == "sent"
    assert box.commands() == []


def test_output_is_reported_in_the_thread_of_the_caller(box: sync.Sandbox) -> None:
    pieces = list[tuple[int, bytes]]()
    threads = set[threading.Thread]()

    def on_output(stream: int, data: bytes) -> None:
        threads.add(threading.current_thread())
        pieces.append((stream, data))
        assert box.exec(["true"]).exit_code == 0  # it can use the box

    result = box.exec("echo one; sleep 0.2; echo two >&2", on_output=on_output)
    assert (result.exit_code, pieces) == (0, [(1, b"one\n"), (2, b"two\n")])
    assert threads == {threading.current_thread()}
    with box.shell() as shell:
        shell.run("echo three", on_output=on_output)
    assert pieces[2:] == [(1, b"three\n")]
    *streamed, last = box.exec_stream("echo four")
    assert (streamed, isinstance(last, CommandResult)) == ([(1, b"four\n")], True)


def test_processes_and_shells_are_used_without_await(box: sync.Sandbox) -> None:
    with box.spawn(["cat"]) as process:
        process.send(b"one\n")
        pieces = iter(process)
        assert next(pieces) == (1, b"one\n")
        process.close_stdin()
        assert [*pieces] == []
        assert process.wait().exit_code == 0
    with box.shell() as shell:
        shell.run("cd /tmp")
        assert shell.run("pwd").stdout == b"/tmp\n"


def test_a_box_is_copied_without_await(box: sync.Sandbox) -> None:
    box.session.set("x", 1)
    checkpoint = box.checkpoint()
    (branch,) = box.fork()
    with branch:
        assert isinstance(branch, sync.Sandbox)
        branch.files.write("of the branch", b"")
        assert branch.session.get("x") == 1
    assert not box.files.exists("of the branch")
    box.session.set("x", 2)
    box.restore(checkpoint)
    assert box.session.get("x") == 1
    box.drop(checkpoint)


def test_a_closed_box_is_gone() -> None:
    with sync.Sandbox() as box:
        assert not box.closed
    assert box.closed
    with pytest.raises(BoxGone):
        box.exec("true")


async def test_a_box_can_be_used_inside_a_running_event_loop(box: sync.Sandbox) -> None:
    assert box.exec(["echo", "hi"]).stdout == b"hi\n"
    assert inspect.iscoroutinefunction(Sandbox.exec)
