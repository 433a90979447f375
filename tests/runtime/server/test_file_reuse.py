"""Reused code files look new, whatever the code of earlier blocks did to them."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cellblock import CodeBlock
from cellblock.runtime.server import file_reuse
from cellblock.runtime.server.file_reuse import ReusableFiles
from cellblock.sync import SandboxCommandLineCodeExecutor
from tests import plain_user


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def write(tmp_path: Path, work: Path) -> Callable[[str, str], int]:
    """Return a function that writes a reused file in the work folder, and returns its inode."""
    reusable = ReusableFiles(str(tmp_path / "reusable"))

    def write_file(name: str, text: str) -> int:
        reusable.write(str(work / name), text.encode())
        status = (work / name).stat()
        assert ((work / name).read_text(), status.st_mode & 0o777) == (text, 0o644)
        return status.st_ino

    return write_file


def test_a_file_is_reused_after_its_name_was_removed(
    work: Path, write: Callable[[str, str], int]
) -> None:
    first = write("one.py", "a long text")
    assert (work / "one.py").stat().st_nlink == 2
    (work / "one.py").unlink()
    assert write("two.py", "short") == first
    (work / "two.py").unlink()
    assert write("three.py", "a text that is longer than all of them") == first


def test_write_returns_the_ctime_of_the_file(tmp_path: Path, work: Path) -> None:
    reusable = ReusableFiles(str(tmp_path / "reusable"))
    for name in ("one", "two"):
        before = time.clock_gettime_ns(5)  # CLOCK_REALTIME_COARSE, the clock of file times
        assert before <= reusable.write(str(work / name), b"text") <= time.time_ns()
        (work / name).unlink()


def test_existing_files_are_not_reused(work: Path, write: Callable[[str, str], int]) -> None:
    inodes = {
        write(f"{number}.py", f"text {number}") for number in range(file_reuse._MAX_FILES + 6)
    }
    assert len(inodes) == file_reuse._MAX_FILES + 6
    for number in range(file_reuse._MAX_FILES + 6):
        assert (work / f"{number}.py").read_text() == f"text {number}"


def test_a_file_that_code_has_hard_linked_is_not_reused(
    work: Path, write: Callable[[str, str], int]
) -> None:
    write("block.py", "kept")
    os.link(work / "block.py", work / "copy.py")
    (work / "block.py").unlink()
    write("next.py", "another")
    assert (work / "copy.py").read_text() == "kept"


def _remove_permissions(file: Path) -> None:
    file.chmod(0)


def _set_attribute(file: Path) -> None:
    os.setxattr(file, "user.mark", b"x")


def _change_owner(file: Path) -> None:
    os.chown(file, 12345, 12345)


def _enlarge(file: Path) -> None:
    os.truncate(file, 1 << 30)


def _make_synchronous(file: Path) -> None:
    descriptor, flags = os.open(file, os.O_RDONLY), bytearray(8)
    try:
        fcntl.ioctl(descriptor, 0x80086601, flags)
        flags[0] |= 8  # FS_SYNC_FL
        fcntl.ioctl(descriptor, 0x40086602, flags)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "change",
    [_remove_permissions, _set_attribute, _change_owner, _enlarge, _make_synchronous],
)
def test_a_file_that_code_has_changed_is_not_reused(
    work: Path, write: Callable[[str, str], int], change: Callable[[Path], None]
) -> None:
    first = write("block.py", "text")
    with open(work / "block.py"):  # keeps the inode number in use
        try:
            change(work / "block.py")
        except OSError as error:
            pytest.skip(f"the change is not possible here: {error}")
        (work / "block.py").unlink()
        assert write("next.py", "another") != first


@pytest.mark.timeout(30)  # a lease would block the writer for 45 s
def test_a_lease_on_a_file_does_not_block_the_writer(
    work: Path, write: Callable[[str, str], int]
) -> None:
    first = write("block.py", "text")
    # The kernel sends SIGIO to break the lease.
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        with open(work / "block.py") as file:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            (work / "block.py").unlink()
            assert write("next.py", "another") != first
    finally:
        signal.signal(signal.SIGIO, before)


def test_with_folders_on_two_filesystems_new_files_are_created(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm") / f"cellblock-test-{os.getpid()}"
    if os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is not a filesystem of its own")
    reusable = ReusableFiles(str(tmp_path / "reusable"))
    elsewhere.mkdir()
    try:
        for name in ("one", "two"):
            reusable.write(str(elsewhere / name), name.encode())
            assert (elsewhere / name).read_text() == name
    finally:
        for name in ("one", "two"):
            (elsewhere / name).unlink()
        elsewhere.rmdir()
    assert os.listdir(tmp_path / "reusable") == []


def test_an_existing_name_is_an_error_and_its_file_stays(work: Path, tmp_path: Path) -> None:
    (work / "taken.py").write_text("mine")
    reusable = ReusableFiles(str(tmp_path / "reusable"))
    with pytest.raises(FileExistsError) as caught:
        reusable.write(str(work / "taken.py"), b"new")
    assert caught.value.filename == str(work / "taken.py")
    assert (work / "taken.py").read_text() == "mine"


PROGRAM = """
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor
look = CodeBlock("import os; print(os.stat(__file__).st_ino, os.stat(__file__).st_nlink)", "python")
with SandboxCommandLineCodeExecutor() as executor:
    print({tuple(executor.execute_code_blocks([look]).check().output.split()) for _ in range(5)})
"""


@pytest.mark.parametrize("user", ["this user", "plain"])
def test_code_files_are_reused_for_blocks_of_any_user(user: str) -> None:
    made = (
        plain_user.unprivileged_command("-c", PROGRAM)
        if user == "plain"
        else ([sys.executable, "-c", PROGRAM], None)
    )
    if made is None:
        pytest.skip("there is no Python 3.11 or later that an unprivileged user can start")
    argv, environment = made
    done = subprocess.run(
        argv, env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    # One inode with two names. A new file could have the inode number of the last one.
    assert re.fullmatch(r"\{\('\d+', '2'\)\}\n", done.stdout), done.stdout + done.stderr


def test_a_block_finds_its_own_code_in_its_file_whatever_the_last_block_did(
    tmp_path: Path,
) -> None:
    changes = (
        "os.link(__file__, 'kept.py')",
        "os.chmod(__file__, 0)",
        "os.remove(__file__); os.mkdir(__file__)",
        "open(__file__, 'a').write('\\n' * 9999)",
        "os.rename(__file__, 'moved.py')",
        "os.truncate(__file__, 0)",
    )
    look = (
        "text = open(__file__).read()\n"
        "print(os.stat(__file__).st_size == len(text), 'look' in text)"
    )
    with SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        files = set[str]()
        for change in changes:
            for code in (
                f"import os\nprint(os.stat(__file__).st_ino, os.stat(__file__).st_nlink)\n{change}",
                f"import os  # look\n{look}",
            ):
                result = executor.execute_code_blocks([CodeBlock(code, "python")])
                assert result.exit_code == 0, result.output
                if "look" in code:
                    assert result.output == "True True\n"
                else:
                    files.add(result.output)
        # Otherwise no file was reused, and nothing was tested.
        assert len(files) < len(changes)
        assert all(file.endswith(" 2\n") for file in files)
    assert "# look" not in (tmp_path / "kept.py").read_text()
    assert "# look" not in (tmp_path / "moved.py").read_text()
