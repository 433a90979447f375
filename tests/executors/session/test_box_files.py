"""Files in the box of a session, by the calls of a process that is confined like its commands."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator

import pytest

from cellblock.runtime import protocol
from cellblock.runtime.box_orders import (
    BoxAnswer,
    FileEntry,
    ListCommands,
    ListFolder,
    ReadFile,
    RemovePath,
    StatPath,
    WriteFile,
)
from cellblock.runtime.linux import process_tree
from cellblock.runtime.packets import decode_fields
from cellblock.testing.liveness import wait_until
from tests.executors.session.box_client import BoxClient, pieces
from tests.executors.session.live_session import run_async

pytestmark = pytest.mark.depends_on_user

MIB = 1 << 20


@pytest.fixture
def box(module_box: BoxClient) -> BoxClient:
    """A box with an empty work folder."""
    module_box.output_of("chmod -R u+rwx .; rm -rf -- * .[!.]*")
    return module_box


async def written(
    box: BoxClient, path: str, data: AsyncIterator[bytes], mode: int | None = None
) -> BoxAnswer:
    """Write a file, and return the answer."""
    answer, order = BoxAnswer(), WriteFile(box.number, path, mode=mode)
    async for frame in box.connection.run_box(order, data=data):
        if frame.kind == protocol.BOX_REPLY:
            answer = decode_fields(frame, BoxAnswer)
    return answer


def write(box: BoxClient, path: str, *data: bytes, mode: int | None = None) -> BoxAnswer:
    return run_async(written(box, path, pieces(data), mode))


def read(box: BoxClient, path: str, limit: int | None = None) -> bytes | int | None:
    """Return the contents of a file, or the error number."""
    order = ReadFile(box.number, path, limit_bytes=limit)
    answer, data = box.ask_with_data(order)
    if answer.errno is not None:
        assert answer.error is not None
        assert repr(path) in answer.error
        assert answer.path == path
        return answer.errno
    assert answer == BoxAnswer()
    return data


def entries(answer: BoxAnswer) -> list[FileEntry]:
    assert answer.errno is None, answer
    return [*(answer.entries or ())]


# read and write


def test_a_file_is_not_read_beyond_a_limit(box: BoxClient) -> None:
    write(box, "file", b"12345")
    assert read(box, "file", 5) == b"12345"
    assert read(box, "file", 4) == errno.EFBIG
    assert read(box, "/proc/self/status", 4) == errno.EFBIG  # whose size is not known before


def test_a_write_keeps_the_mode_of_the_file_or_sets_it(box: BoxClient) -> None:
    write(box, "new", b"x")
    write(box, "private", b"x", mode=0o600)
    box.output_of("printf x >script; chmod 755 script")
    write(box, "script", b"y")
    modes = box.output_of("stat -c '%n %a' new private script").split("\n")
    assert modes == ["new 644", "private 600", "script 755"]
    write(box, "script", b"y", mode=0o700)
    assert box.output_of("stat -c %a script; cat script") == "700\ny"


def test_a_write_goes_through_links(box: BoxClient) -> None:
    box.output_of(
        "mkdir below; echo x >below/file; ln -s below/file link; ln -s below/new dangling"
    )
    write(box, "link", b"y")
    write(box, "dangling", b"z")
    assert box.output_of("readlink link dangling; cat below/file below/new") == (
        "below/file\nbelow/new\nyz"
    )


def test_a_write_keeps_other_names_of_the_file(box: BoxClient) -> None:
    box.output_of("echo longer >one; ln one two")
    write(box, "one", b"x")
    assert box.output_of("cat two; stat -c %h one") == "x2"


def test_a_write_replaces_the_file_in_one_step(box: BoxClient) -> None:
    async def check() -> None:
        await written(box, "file", pieces([b"old"]))
        has_begun, can_end = asyncio.Event(), asyncio.Event()

        async def data() -> AsyncIterator[bytes]:
            yield b"ne"
            has_begun.set()
            await can_end.wait()
            yield b"w"

        writing = asyncio.create_task(written(box, "file", data()))
        await has_begun.wait()
        _, before = await box.connection.ask_box(ReadFile(box.number, "file"))
        can_end.set()
        await writing
        _, after = await box.connection.ask_box(ReadFile(box.number, "file"))
        assert (before, after) == (b"old", b"new")

    run_async(check())
    assert [entry.name for entry in entries(box.ask(ListFolder, "."))] == ["file"]


def test_a_write_that_is_given_up_leaves_nothing(box: BoxClient) -> None:
    async def check() -> None:
        has_begun = asyncio.Event()

        async def data() -> AsyncIterator[bytes]:
            yield bytes(MIB)
            has_begun.set()
            await asyncio.Event().wait()

        writing = asyncio.create_task(written(box, "file", data()))
        await has_begun.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    run_async(check())
    assert entries(box.ask(ListFolder, ".")) == []


# errors


def test_odd_paths_are_errors(box: BoxClient) -> None:
    box.output_of("mkdir folder; echo x >file")
    assert read(box, "a\0b") == errno.EINVAL
    assert read(box, "/dev/zero") == errno.EINVAL
    read_only = {errno.EROFS, errno.EACCES}
    expected = {
        "folder/": {errno.EISDIR},
        ".": {errno.EISDIR},
        "": {errno.ENOENT},
        "file/below/more": {errno.ENOTDIR},
        "/usr/new": read_only,
        "/etc/passwd": read_only,
    }
    found = {path: write(box, path, b"x").errno for path in expected}
    assert [path for path in found if found[path] not in expected[path]] == [], found


def test_an_early_error_does_not_wait_for_the_data(box: BoxClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(MIB)

    box.output_of("mkdir folder")
    assert run_async(written(box, "folder", endless())).errno == errno.EISDIR
    assert write(box, "file", b"x") == BoxAnswer()


def test_files_are_used_as_the_user_of_the_box(box: BoxClient) -> None:
    assert box.ask(StatPath, ".", user="cell").errno is None
    answer = box.ask(StatPath, ".", user="root")
    assert (answer.errno, answer.path) == (errno.EPERM, None)


# folders


def test_the_work_folder_and_those_above_it_stay(box: BoxClient) -> None:
    box.output_of("mkdir d; echo x >d/f; ln -s .. up")
    folder = box.output_of("pwd")
    above = (".", "", "..", "/", "d/..", "d/../", "up/..")
    for path in (*above, folder, f"{folder}/", f"/tmp/../{folder}"):
        assert box.ask(RemovePath, path).errno in (errno.ENOTSUP, errno.ENOENT), path
    assert box.ask(RemovePath, "").errno == errno.ENOENT
    assert box.output_of("cat d/f") == "x"


# several at once


def test_a_long_transfer_does_not_hold_up_others(box: BoxClient) -> None:
    async def check() -> None:
        can_end, has_begun = asyncio.Event(), asyncio.Event()

        async def data() -> AsyncIterator[bytes]:
            yield bytes(MIB)
            has_begun.set()
            await can_end.wait()

        writing = [asyncio.create_task(written(box, f"slow-{n}", data())) for n in range(3)]
        await has_begun.wait()
        assert await written(box, "fast", pieces([b"x"])) == BoxAnswer()
        can_end.set()
        assert await asyncio.gather(*writing) == [BoxAnswer()] * 3

    run_async(check())


def test_a_process_of_files_that_is_killed_is_replaced(box: BoxClient) -> None:
    """It is not listed as a command. Where the kernel lets commands kill it, that ends its work."""

    async def check() -> None:
        has_begun = asyncio.Event()

        async def data() -> AsyncIterator[bytes]:
            yield bytes(MIB)
            has_begun.set()
            await asyncio.Event().wait()

        writing = asyncio.create_task(written(box, "file", data()))
        await has_begun.wait()
        workers = [*filter(is_worker, process_tree.descendants(box.connection.pid))]
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        assert (await writing).errno == errno.EIO
        await wait_until(lambda: all(map(process_tree.has_ended, workers)), "they have ended")
        assert await written(box, "file", pieces([b"x"])) == BoxAnswer()

    assert box.ask(ListCommands).processes == ()
    run_async(check())


def is_worker(pid: int) -> bool:
    """Return True for a process without output pipes in a session's cell: it works on files.

    Only root can see that. For a plain user, it is a hidden child of a hidden first process, as is
    what starts commands.
    """
    try:
        names = [os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)]
    except FileNotFoundError:
        return False
    except PermissionError:
        parent = process_tree.parent_of(pid)
        return process_tree.pid_in_namespace(parent) == 1 != process_tree.pid_in_namespace(pid)
    return names == ["/dev/null"] * 3
