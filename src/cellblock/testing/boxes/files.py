"""Files: the same tree as commands see, with their rights."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import tempfile
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from ...box.base import Box
from .registry import check_box, raises

MIB = 1 << 20


def error_number(caught: raises) -> int | None:
    """Return the `errno` of what was raised."""
    return caught.error.errno if isinstance(caught.error, OSError) else None


@check_box
async def files_and_commands_see_one_tree(box: Box) -> None:
    for path in ("below", f"{box.inner_work_dir}/absolute", "/tmp/temporary"):
        await box.files.write(path, "text")
        assert (await box.exec(["cat", path])).stdout == b"text", path
        await box.exec(["sh", "-c", 'printf more >> "$1"', "sh", path])
        assert await box.files.read(path) == b"textmore", path


@check_box
async def all_bytes_are_kept(box: Box) -> None:
    data = bytes(range(256)) * 3
    await box.files.write("data", data)
    assert await box.files.read("data") == data
    await box.files.write("data", b"")
    assert await box.files.read("data") == b""
    await box.files.write("text", "ä\r\n")
    assert await box.files.read_text("text") == "ä\r\n"


@check_box
async def names_are_any_bytes_but_slash_and_nul(box: Box) -> None:
    for name in ("a b", "new\nline", "-n", "ä", "\udcff", "'; touch injected; '", "x" * 255):
        await box.files.write(name, name.encode(errors="surrogateescape"))
        assert await box.files.read(name) == name.encode(errors="surrogateescape")
        assert (await box.exec(["cat", "--", name])).exit_code == 0
        assert name in [entry.name for entry in await box.files.list()], name
        await box.files.remove(name)
    assert await box.files.list() == []


@check_box
async def large_files_are_kept(box: Box) -> None:
    data = os.urandom(MIB) * 50
    await box.files.write("data", data)
    assert await box.files.read("data") == data


@check_box
async def a_read_can_be_limited(box: Box) -> None:
    await box.files.write("data", bytes(1024))
    assert len(await box.files.read("data", limit_bytes=1024)) == 1024
    with raises(OSError, text="data") as caught:
        await box.files.read("data", limit_bytes=1023)
    assert error_number(caught) == errno.EFBIG, caught.error


@check_box
async def a_file_that_grows_is_read_up_to_its_size(box: Box) -> None:
    grow = (
        "yes | head -c 1000 > grows; echo begun; while :; do yes | head -c 4000000 >> grows; done"
    )
    async with await box.spawn(grow) as process:
        await anext(aiter(process))
        assert len(await box.files.read("grows")) >= 1000
        await process.kill()


@check_box
async def folders_above_a_new_file_are_made(box: Box) -> None:
    await box.files.write("a/b/c", "deep")
    assert await box.files.read("a/b/c") == b"deep"
    await box.files.make_dir("d/e")
    await box.files.make_dir("d/e")
    assert (await box.files.stat("d/e")).is_folder


@check_box
async def a_write_keeps_the_permissions_and_mode_sets_them(box: Box) -> None:
    await box.files.write("script", "#!/bin/sh\necho ran", mode=0o755)
    assert (await box.exec(["./script"])).stdout == b"ran\n"
    await box.files.write("script", "#!/bin/sh\necho again")
    assert (await box.exec(["./script"])).stdout == b"again\n"
    assert (await box.files.stat("script")).mode == 0o755


@check_box
async def a_write_over_a_longer_file_leaves_nothing_of_it(box: Box) -> None:
    await box.files.write("data", bytes(100_000))
    await box.files.write("data", b"short")
    assert await box.files.read("data") == b"short"


@check_box
async def a_folder_is_listed_by_name(box: Box) -> None:
    await box.exec("mkdir sub; printf 123 > b; chmod 640 b; : > a; mkfifo pipe; ln -s b link")
    found = await box.files.list()
    kinds = [(entry.name, entry.kind, entry.is_link) for entry in found]
    assert kinds == [
        ("a", "file", False),
        ("b", "file", False),
        ("link", "file", True),
        ("pipe", "other", False),
        ("sub", "folder", False),
    ], kinds
    assert (found[1].size, found[1].mode) == (3, 0o640), found
    assert found[1].path == f"{box.inner_work_dir}/b", found
    clock = float((await box.exec(["stat", "-c", "%Y", "b"])).stdout)
    assert abs(found[1].modified - clock) < 2, found
    assert [entry.name for entry in await box.files.list(box.inner_work_dir)] == [
        entry.name for entry in found
    ]


@check_box
async def a_folder_of_many_files_is_listed(box: Box) -> None:
    long = "/".join(["folder" * 40] * 14)
    await box.files.make_dir(long)
    await box.run_code(f"""
import contextlib
with contextlib.chdir("{long}"):
    for number in range(5_000):
        open(f"{{number:0250}}", "w").close()
""")
    names = [entry.name for entry in await box.files.list(long)]
    assert names == [f"{number:0250}" for number in range(5_000)]


@check_box
async def file_errors_are_the_builtin_ones(box: Box) -> None:
    files = box.files
    await files.write("file", b"")
    await files.make_dir("folder")
    for path in ("gone", "folder/gone"):
        with raises(FileNotFoundError, text=path):
            await files.read(path)
        with raises(FileNotFoundError, text=path):
            await files.stat(path)
        with raises(FileNotFoundError, text=path):
            await files.list(path)
        with raises(FileNotFoundError, text=path):
            await files.remove(path)
        await files.remove(path, missing_ok=True)
        assert not await files.exists(path)
    with raises(IsADirectoryError, text="folder"):
        await files.read("folder")
    with raises(IsADirectoryError, text="folder"):
        await files.write("folder", b"")
    with raises(NotADirectoryError, text="file"):
        await files.list("file")
    with raises(NotADirectoryError, text="file"):
        await files.write("file/below", b"")
    with raises(NotADirectoryError, text="file"):
        await files.make_dir("file/below")
    with raises(NotADirectoryError, text="file"):
        await files.read("file/below")
    with raises(FileExistsError, text="file"):
        await files.make_dir("file")
    with raises(FileNotFoundError):
        await files.read("")
    with raises(OSError, text="x" * 20) as caught:
        await files.write("x" * 300, b"")
    assert error_number(caught) == errno.ENAMETOOLONG, caught.error


@check_box
async def errors_name_the_path_as_given(box: Box) -> None:
    try:
        await box.files.read("a/../gone")
    except FileNotFoundError as error:
        assert (error.filename, error.errno) == ("a/../gone", errno.ENOENT), error
        assert error.strerror, error


@check_box
async def a_pipe_is_not_waited_for(box: Box) -> None:
    await box.exec(["mkfifo", "pipe"])
    with raises(OSError, text="Not a regular file: 'pipe'"):
        await asyncio.wait_for(box.files.read("pipe"), 60)
    with raises(OSError, text="pipe"):
        await asyncio.wait_for(box.files.write("pipe", b"x"), 60)


@check_box
async def files_have_the_rights_of_commands(box: Box) -> None:
    await box.exec(
        "echo x > shut; chmod 000 shut; mkdir closed; echo y > closed/in; chmod 0 closed"
    )
    for path in ("shut", "closed/in"):
        may_read = (await box.exec(["cat", path])).exit_code == 0
        if may_read:
            await box.files.read(path)
        else:
            with raises(PermissionError, text=path):
                await box.files.read(path)
    may_write = (await box.exec("echo x >> /etc/passwd")).exit_code == 0
    if not may_write:
        with raises(OSError, text="/etc/passwd"):
            await box.files.write("/etc/passwd", b"")
    await box.exec("chmod 700 closed shut")


@check_box
async def links_are_followed_inside_the_box_only(box: Box) -> None:
    with tempfile.TemporaryDirectory(prefix="cellblock-check-") as folder:
        secret = Path(folder, "secret")
        secret.write_text("of the host")
        await box.exec(["ln", "-s", str(secret), "out"])
        with raises(FileNotFoundError, text="out"):
            await box.files.read("out")
    await box.exec(
        "echo x > /tmp/x; ln -s /tmp/x in; mkdir real; ln -s real through; ln -s new dangling"
    )
    assert await box.files.read("in") == b"x\n"
    await box.files.write("through/file", "text")
    assert await box.files.read("real/file") == b"text"
    assert [entry.name for entry in await box.files.list("through")] == ["file"]
    await box.files.write("dangling", "made")
    assert await box.files.read("new") == b"made"
    status = await box.files.stat("through")
    assert (status.kind, status.is_link) == ("folder", True), status
    status = await box.files.stat("through", follow_links=False)
    assert (status.kind, status.is_link) == ("link", True), status


@check_box
async def loops_of_links_end(box: Box) -> None:
    await box.exec("ln -s two one; ln -s one two")
    with raises(OSError, text="one"):
        await box.files.read("one")
    assert not await box.files.exists("one")
    entries = {entry.name: entry for entry in await box.files.list()}
    assert (entries["one"].kind, entries["one"].is_link) == ("link", True), entries


@check_box
async def paths_are_resolved(box: Box) -> None:
    await box.exec("mkdir real; ln -s real link")
    inner = box.inner_work_dir
    assert await box.files.resolve("link/../link/gone/file") == f"{inner}/real/gone/file"
    assert await box.files.resolve(".") == inner
    assert await box.files.resolve("/../..//tmp") == "/tmp"


@check_box
async def removing_takes_a_tree_and_a_link_itself(box: Box) -> None:
    await box.exec("mkdir -p tree/a/b; touch tree/a/b/c; mkdir kept; touch kept/x; ln -s kept link")
    await box.exec("ln -s ../kept tree/a/link")
    await box.files.remove("tree")
    await box.files.remove("link")
    found = await box.exec("ls -a . kept")
    assert found.stdout == b".:\n.\n..\nkept\n\nkept:\n.\n..\nx\n", found


@check_box
async def the_work_folder_and_those_above_it_are_not_removed(box: Box) -> None:
    await box.files.write("kept", "x")
    await box.exec(["ln", "-s", ".", "itself"])
    for path in (".", "/", box.inner_work_dir, f"{box.inner_work_dir}/", "kept/..", "a/../", "//"):
        with raises(ValueError, OSError, text=path):
            await box.files.remove(path)
    assert await box.files.read("kept") == b"x"
    await box.files.remove("itself")
    assert await box.files.read("kept") == b"x"


@check_box
async def a_folder_that_is_too_deep_is_not_taken_for_the_work_folder(box: Box) -> None:
    made = await box.exec(
        "mkdir -p $(printf 'deep/%.0s' $(seq 800)) && cd $(printf 'deep/%.0s' "
        "$(seq 800)) && mkdir -p $(printf 'deep/%.0s' $(seq 700))"
    )
    assert made.exit_code == 0, made
    with contextlib.suppress(OSError):  # Python may not reach the end of it
        await box.files.remove("deep")
    await box.exec("rm -rf deep")


@check_box
async def many_files_are_written_at_once(box: Box) -> None:
    names = [f"folder/{number}" for number in range(50)]
    await asyncio.gather(*(box.files.write(name, name * 1000) for name in names))
    found = await asyncio.gather(*(box.files.read(name) for name in names))
    assert found == [(name * 1000).encode() for name in names]


@check_box
async def a_large_file_does_not_hold_up_others(box: Box) -> None:
    await box.exec("head -c 200000000 /dev/zero > large")
    reading = asyncio.ensure_future(box.files.read("large"))
    for number in range(20):
        await box.files.write(f"small{number}", b"x")
    assert len(await reading) == 200_000_000


class _SlowFile(io.BytesIO):
    """A file that takes nothing until `may_go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on, self.size = threading.Event(), 0

    def write(self, data: Any) -> int:
        self.may_go_on.wait()
        self.size += len(data)
        return len(data)


@check_box
async def a_download_to_a_slow_file_waits_in_the_box(box: Box) -> None:
    await box.exec("truncate -s 500M large")
    before, target = _resident_bytes(), _SlowFile()
    reading = asyncio.ensure_future(box.files.download("large", target))
    try:
        for _ in range(50):
            assert len((await box.exec("head -c 1000000 /dev/zero")).stdout) == 1_000_000
        grown = _resident_bytes() - before
    finally:
        target.may_go_on.set()
    await reading
    assert target.size == 500 << 20
    assert grown < 120 << 20, grown


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@check_box
async def a_cancelled_transfer_leaves_the_box_usable(box: Box) -> None:
    await box.exec("head -c 200000000 /dev/zero > large")
    reading = asyncio.ensure_future(box.files.read("large"))
    await box.files.exists("large")
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert await box.files.exists("large")


async def _pieces() -> AsyncGenerator[bytes]:
    for number in range(5):
        yield b"%d" % number * 300_000


@check_box
async def streams_are_uploaded_and_downloaded(box: Box) -> None:
    expected = b"".join([piece async for piece in _pieces()])
    await box.files.upload(_pieces(), "made/pieces")
    await box.files.upload(io.BytesIO(expected), "made/file")
    for name in ("made/pieces", "made/file"):
        target = io.BytesIO()
        await box.files.download(name, target)
        assert target.getvalue() == expected, name


@check_box
async def a_download_can_be_limited(box: Box) -> None:
    for name in ("tree/a", "tree/b"):
        await box.files.write(name, bytes(1000))
    with tempfile.TemporaryDirectory() as folder:
        for name, room in (("tree/a", 999), ("tree", 1999)):
            with raises(OSError, text=name) as caught:
                await box.files.download(name, Path(folder, "new", name), limit_bytes=room)
            assert error_number(caught) == errno.EFBIG, caught.error
            assert Path(folder, "new").exists() == (name == "tree"), name
        await box.files.download("tree", Path(folder, "tree"), limit_bytes=2000)
        sizes = [path.stat().st_size for path in Path(folder, "tree").iterdir()]
        assert sizes == [1000, 1000], sizes


async def _pieces_and(last: object) -> AsyncGenerator[bytes]:
    yield b"first"
    if isinstance(last, BaseException):
        raise last
    yield last  # pyright: ignore[reportReturnType] - on purpose


@check_box
async def an_upload_whose_source_fails_changes_nothing(box: Box) -> None:
    await box.files.write("kept", "old")
    for last in (asyncio.CancelledError(), KeyError("lost")):
        with raises(RuntimeError, KeyError):
            await box.files.upload(_pieces_and(last), "kept")
    for last in (None, "text", 5):
        with raises(ValueError, text=repr(last)):
            await box.files.upload(_pieces_and(last), "kept")
    with raises(ValueError, text="'text'"):
        await box.files.upload(io.StringIO("text"), "kept")  # pyright: ignore[reportArgumentType]
    assert await box.files.read("kept") == b"old"


@check_box
async def folders_are_uploaded_and_downloaded(box: Box) -> None:
    with tempfile.TemporaryDirectory(prefix="cellblock-check-") as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        (source / "sub" / "empty").mkdir(parents=True)
        (source / "sub" / "data").write_bytes(bytes(3 * MIB))
        (source / "run").write_text("#!/bin/sh\necho ran")
        (source / "run").chmod(0o755)
        await box.files.upload(source, "tree")
        assert (await box.exec(["tree/run"])).stdout == b"ran\n"
        await box.files.download("tree", target)
        found = sorted(path.relative_to(target).as_posix() for path in target.rglob("*"))
        assert found == ["run", "sub", "sub/data", "sub/empty"], found
        assert (target / "sub" / "data").read_bytes() == bytes(3 * MIB)
        assert (target / "run").stat().st_mode & 0o111
        await box.files.download("tree/run", target / "again")
        assert (target / "again").read_text() == "#!/bin/sh\necho ran"


@check_box
async def an_upload_never_leaves_its_folder(box: Box) -> None:
    with tempfile.TemporaryDirectory(prefix="cellblock-check-") as folder:
        outside, source = Path(folder, "outside"), Path(folder, "source")
        outside.mkdir()
        (outside / "private").write_text("of the host")
        source.mkdir()
        (source / "file").write_text("x")
        links = {
            "link": "file",
            "private": outside / "private",
            "folder": outside,
            "loop": ".",
            "self": "self",
            "dangling": "gone",
        }
        for name, text in links.items():
            (source / name).symlink_to(text)
        os.mkfifo(source / "pipe")
        await box.files.upload(source, "sent")
        assert [entry.name for entry in await box.files.list("sent")] == ["file", "link"]
        assert await box.files.read("sent/link") == b"x"


@check_box
async def a_download_never_leaves_its_folder(box: Box) -> None:
    await box.exec(
        "mkdir tree; ln -s /etc tree/etc; ln -s . tree/loop; echo x > tree/file;"
        "ln -s file tree/link; ln -s gone tree/dangling; mkfifo tree/pipe"
    )
    with tempfile.TemporaryDirectory(prefix="cellblock-check-") as folder:
        outside, target = Path(folder, "outside"), Path(folder, "target")
        outside.mkdir()
        (outside / "file").write_text("of the host")
        target.mkdir()
        (target / "file").symlink_to(outside / "file")
        await box.files.download("tree", target)
        assert (outside / "file").read_text() == "of the host"
        found = {path.name: path for path in target.iterdir()}
        assert sorted(found) == ["file", "link"], found
        assert not any(path.is_symlink() for path in found.values())
        assert found["link"].read_text() == "x\n"
