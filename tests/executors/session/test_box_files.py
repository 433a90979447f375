"""Files in the box of a session, by the calls of a process that is confined like its commands."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from cellblock import SandboxSessionServer
from cellblock.runtime import protocol
from cellblock.runtime.box_orders import (
    BoxAnswer,
    FileEntry,
    HoldOutput,
    ListCommands,
    ListFolder,
    MakeFolder,
    ReadFile,
    RemovePath,
    ResolvePath,
    StatPath,
    WriteFile,
)
from cellblock.runtime.linux import process_tree
from cellblock.runtime.packets import decode_fields
from cellblock.testing.liveness import wait_until
from tests.executors.session.box_client import BoxClient, pieces
from tests.executors.session.live_session import open_session, run_async

MIB = 1 << 20


@pytest.fixture(scope="module")
def module_box(
    shared: SandboxSessionServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BoxClient]:
    with open_session(shared, tmp_path_factory.mktemp("work")) as live:
        yield BoxClient(live)


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


def test_what_is_written_is_read_and_seen_by_commands_and_blocks(box: BoxClient) -> None:
    data = bytes(range(256)) * 5000
    assert write(box, "a/b/c.bin", data[:1000], data[1000:]) == BoxAnswer()
    assert read(box, "a/b/c.bin") == data
    assert (box.live.folder / "a/b/c.bin").read_bytes() == data
    assert box.output_of("wc -c <a/b/c.bin") == str(len(data))
    assert box.live.run_ok("print(len(open('a/b/c.bin', 'rb').read()))") == str(len(data))
    assert write(box, "/tmp/there") == BoxAnswer()
    assert read(box, "/tmp/there") == b""
    assert box.live.run_ok("import os; print(os.path.getsize('/tmp/there'))") == "0"


def test_names_need_not_be_text(box: BoxClient) -> None:
    for name in ("a b'\"\n", "ü", os.fsdecode(b"\xff\xfe")):
        assert write(box, name, b"x") == BoxAnswer()
        assert read(box, name) == b"x"
        assert name in [entry.name for entry in entries(box.ask(ListFolder, "."))]
    assert read(box, "a\0b") == errno.EINVAL


def test_fifty_megabytes_are_written_and_read(box: BoxClient) -> None:
    piece = os.urandom(MIB)
    assert write(box, "large", *[piece] * 50) == BoxAnswer()
    assert read(box, "large") == piece * 50


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


def test_errors_have_their_usual_numbers(box: BoxClient) -> None:
    box.output_of("mkdir folder; echo x >file; ln -s loop loop; echo x >secret; chmod 0 secret")
    assert read(box, "missing") == errno.ENOENT
    assert read(box, "folder") == errno.EISDIR
    assert read(box, "file/below") == errno.ENOTDIR
    assert read(box, "loop") == errno.ELOOP
    assert read(box, "secret") == errno.EACCES
    assert read(box, "") == errno.ENOENT
    assert write(box, "folder", b"x").errno == errno.EISDIR
    assert write(box, "folder/", b"x").errno == errno.EISDIR
    assert write(box, ".", b"x").errno == errno.EISDIR
    assert write(box, "", b"x").errno == errno.ENOENT
    assert write(box, "file/below", b"x").errno == errno.ENOTDIR
    assert write(box, "file/below/more", b"x").errno == errno.ENOTDIR
    assert write(box, "secret", b"x").errno == errno.EACCES
    assert write(box, "/usr/new", b"x").errno in (errno.EROFS, errno.EACCES)
    assert write(box, "/etc/passwd", b"x").errno in (errno.EROFS, errno.EACCES)
    assert box.ask(MakeFolder, "file").errno == errno.EEXIST
    assert box.ask(MakeFolder, "file/below").errno == errno.ENOTDIR
    assert box.ask(ListFolder, "file").errno == errno.ENOTDIR
    assert box.ask(ListFolder, "missing").errno == errno.ENOENT
    assert box.ask(StatPath, "missing").errno == errno.ENOENT
    assert box.ask(RemovePath, "missing").errno == errno.ENOENT


def test_an_early_error_does_not_wait_for_the_data(box: BoxClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(MIB)

    box.output_of("mkdir folder")
    assert run_async(written(box, "folder", endless())).errno == errno.EISDIR
    assert write(box, "file", b"x") == BoxAnswer()


def test_a_pipe_is_neither_read_nor_waited_for(box: BoxClient) -> None:
    box.output_of("mkfifo pipe")
    assert read(box, "pipe") == errno.EINVAL
    assert write(box, "pipe", b"x").errno == errno.ENXIO
    assert read(box, "/dev/zero") == errno.EINVAL


def test_files_are_used_as_the_user_of_the_box(box: BoxClient) -> None:
    assert box.ask(StatPath, ".", user="cell").errno is None
    answer = box.ask(StatPath, ".", user="root")
    assert (answer.errno, answer.path) == (errno.EPERM, None)


# folders


def test_a_folder_lists_what_its_links_lead_to(box: BoxClient) -> None:
    box.output_of(
        "mkdir d; echo xyz >f; chmod 640 f; ln -s d to-d; ln -s f to-f; ln -s none dangling; "
        "ln -s loop loop; mkfifo pipe; touch -d @12345 f"
    )
    found = entries(box.ask(ListFolder, "."))
    kinds = [(entry.name, entry.kind, entry.is_link) for entry in found]
    assert kinds == [
        ("d", "folder", False),
        ("dangling", "link", True),
        ("f", "file", False),
        ("loop", "link", True),
        ("pipe", "other", False),
        ("to-d", "folder", True),
        ("to-f", "file", True),
    ]
    folder = box.output_of("pwd")
    file = FileEntry("f", f"{folder}/f", "file", False, 4, 0o640, 12345)
    assert file in found
    assert entries(box.ask(StatPath, "f")) == [file]
    assert entries(box.ask(StatPath, "./d/../f")) == [file]
    (to_f,) = entries(box.ask(StatPath, "to-f"))
    assert to_f == file._replace(name="to-f", path=f"{folder}/to-f", is_link=True)
    (link,) = entries(box.ask(StatPath, "to-f", follows_links=False))
    assert (link.kind, link.is_link) == ("link", True)
    assert box.ask(StatPath, "dangling").errno == errno.ENOENT
    assert box.ask(StatPath, "loop").errno == errno.ELOOP


def test_folders_are_made_with_those_above(box: BoxClient) -> None:
    for _ in range(2):
        assert box.ask(MakeFolder, "a/b/c") == BoxAnswer()
    assert (box.live.folder / "a/b/c").is_dir()


def test_a_path_is_resolved_as_far_as_it_exists(box: BoxClient) -> None:
    box.output_of("mkdir d; ln -s d to-d")
    folder = box.output_of("pwd -P")
    assert box.ask(ResolvePath, "to-d/none/x").path == f"{folder}/d/none/x"
    assert box.ask(ResolvePath, "../").path == os.path.dirname(folder)


def test_a_folder_and_its_contents_are_removed_but_not_what_links_lead_to(box: BoxClient) -> None:
    box.output_of(
        "mkdir -p d/e kept; echo x >d/e/f; echo x >kept/f; ln -s ../kept d/link; ln -s kept k"
    )
    assert box.ask(RemovePath, "d") == BoxAnswer()
    assert box.ask(RemovePath, "k") == BoxAnswer()
    assert box.output_of("ls; cat kept/f").split() == ["kept", "x"]
    assert box.ask(RemovePath, "d", may_miss=True) == BoxAnswer()


def test_the_work_folder_and_those_above_it_stay(box: BoxClient) -> None:
    box.output_of("mkdir d; echo x >d/f; ln -s .. up")
    folder = box.output_of("pwd")
    paths = (
        ".",
        "",
        "..",
        "/",
        "d/..",
        "d/../",
        folder,
        f"{folder}/",
        f"/tmp/../{folder}",
        "up/..",
    )
    for path in paths:
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


def test_many_files_are_written_at_once(box: BoxClient) -> None:
    async def check() -> None:
        data = [os.urandom(300_000) for _ in range(30)]
        writing = [written(box, f"file-{n}", pieces([part])) for n, part in enumerate(data)]
        assert await asyncio.gather(*writing) == [BoxAnswer()] * 30
        orders = [ReadFile(box.number, f"file-{number}") for number in range(30)]
        found = await asyncio.gather(*map(box.connection.ask_box, orders))
        assert [content for _, content in found] == data

    run_async(check())


def test_a_held_file_waits_and_no_other(box: BoxClient) -> None:
    async def check() -> None:
        await written(box, "large", pieces([bytes(MIB)] * 20))
        received, run = 0, 0
        order = ReadFile(box.number, "large")
        async for frame in box.connection.run_box(order):
            received += len(frame.payload) if frame.kind == protocol.VALUE_CHUNK else 0
            if not run:
                run = frame.run
                await box.connection.ask_box(HoldOutput(box.number, run, True))
                assert await written(box, "other", pieces([b"x"])) == BoxAnswer()
                await box.connection.ask_box(HoldOutput(box.number, run, False))
        assert received == 20 * MIB

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
