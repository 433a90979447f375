"""The files of blocks, used again: as if each were new, whatever code did with the one before."""

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
from cellblock.runtime.server.file_reuse import Slates
from cellblock.sync import SandboxCommandLineCodeExecutor
from tests import plain_user


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def written(tmp_path: Path, work: Path) -> Callable[[str, str], int]:
    """Give what writes a file in the work folder by slates, and gives its inode."""
    own = Slates(str(tmp_path / "slates"))

    def write(name: str, text: str) -> int:
        own.write(str(work / name), text.encode())
        status = (work / name).stat()
        assert ((work / name).read_text(), status.st_mode & 0o777) == (text, 0o644)
        return status.st_ino

    return write


def test_a_file_whose_name_was_removed_is_used_again(
    work: Path, written: Callable[[str, str], int]
) -> None:
    first = written("one.py", "a long text")
    assert (work / "one.py").stat().st_nlink == 2
    (work / "one.py").unlink()
    assert written("two.py", "short") == first
    (work / "two.py").unlink()
    assert written("three.py", "a text that is longer than all of them") == first


def test_the_time_of_change_is_that_of_the_writing(tmp_path: Path, work: Path) -> None:
    own = Slates(str(tmp_path / "slates"))
    for name in ("one", "two"):
        before = time.clock_gettime_ns(5)  # CLOCK_REALTIME_COARSE, which marks changes of files
        assert before <= own.write(str(work / name), b"text") <= time.time_ns()
        (work / name).unlink()


def test_files_that_are_there_are_left_alone(
    work: Path, written: Callable[[str, str], int]
) -> None:
    inodes = {written(f"{number}.py", f"text {number}") for number in range(file_reuse._MOST + 6)}
    assert len(inodes) == file_reuse._MOST + 6
    for number in range(file_reuse._MOST + 6):
        assert (work / f"{number}.py").read_text() == f"text {number}"


def test_what_code_has_linked_for_itself_stays_its_own(
    work: Path, written: Callable[[str, str], int]
) -> None:
    written("block.py", "kept")
    os.link(work / "block.py", work / "copy.py")
    (work / "block.py").unlink()
    written("next.py", "another")
    assert (work / "copy.py").read_text() == "kept"


def _close(file: Path) -> None:
    file.chmod(0)


def _mark(file: Path) -> None:
    os.setxattr(file, "user.mark", b"x")


def _give_away(file: Path) -> None:
    os.chown(file, 12345, 12345)


def _swell(file: Path) -> None:
    os.truncate(file, 1 << 30)


def _have_written_at_once(file: Path) -> None:
    descriptor, flags = os.open(file, os.O_RDONLY), bytearray(8)
    try:
        fcntl.ioctl(descriptor, 0x80086601, flags)
        flags[0] |= 8  # FS_SYNC_FL
        fcntl.ioctl(descriptor, 0x40086602, flags)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("change", [_close, _mark, _give_away, _swell, _have_written_at_once])
def test_a_file_that_code_has_changed_is_not_used_again(
    work: Path, written: Callable[[str, str], int], change: Callable[[Path], None]
) -> None:
    first = written("block.py", "text")
    with open(work / "block.py"):  # which keeps its number from being given to another file
        try:
            change(work / "block.py")
        except OSError as error:
            pytest.skip(f"This cannot be done here: {error}.")
        (work / "block.py").unlink()
        assert written("next.py", "another") != first


@pytest.mark.timeout(30)  # the kernel would hold us up for 45 s
def test_a_lease_holds_up_nobody(work: Path, written: Callable[[str, str], int]) -> None:
    first = written("block.py", "text")
    before = signal.signal(
        signal.SIGIO, signal.SIG_IGN
    )  # by which the kernel says that it wants the lease back
    try:
        with open(work / "block.py") as file:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            (work / "block.py").unlink()
            assert written("next.py", "another") != first
    finally:
        signal.signal(signal.SIGIO, before)


def test_on_two_disks_files_are_made(tmp_path: Path) -> None:
    elsewhere = Path("/dev/shm") / f"cellblock-test-{os.getpid()}"
    if os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is no disk of its own.")
    own = Slates(str(tmp_path / "slates"))
    elsewhere.mkdir()
    try:
        for name in ("one", "two"):
            own.write(str(elsewhere / name), name.encode())
            assert (elsewhere / name).read_text() == name
    finally:
        for name in ("one", "two"):
            (elsewhere / name).unlink()
        elsewhere.rmdir()
    assert os.listdir(tmp_path / "slates") == []


def test_a_name_that_is_taken_is_an_error_and_its_file_stays(work: Path, tmp_path: Path) -> None:
    (work / "taken.py").write_text("mine")
    own = Slates(str(tmp_path / "slates"))
    with pytest.raises(FileExistsError) as caught:
        own.write(str(work / "taken.py"), b"another's")
    assert caught.value.filename == str(work / "taken.py")
    assert (work / "taken.py").read_text() == "mine"


PROGRAM = """
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor
look = CodeBlock("import os; print(os.stat(__file__).st_ino, os.stat(__file__).st_nlink)", "python")
with SandboxCommandLineCodeExecutor() as executor:
    print({tuple(executor.execute_code_blocks([look]).check().output.split()) for _ in range(5)})
"""


@pytest.mark.parametrize("user", ["the one of these tests", "plain"])
def test_blocks_of_any_user_have_their_file_used_again(user: str) -> None:
    made = (
        plain_user.command("-c", PROGRAM)
        if user == "plain"
        else ([sys.executable, "-c", PROGRAM], None)
    )
    if made is None:
        pytest.skip("No Python of 3.11 or later that a user without rights can start.")
    argv, environment = made
    done = subprocess.run(
        argv, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=50
    )
    # One file, which has another name: a new one might have been given the number of the last.
    assert re.fullmatch(r"\{\('\d+', '2'\)\}\n", done.stdout), done.stdout + done.stderr


def test_blocks_find_their_own_code_in_their_file_whatever_the_last_one_did_to_its_own(
    tmp_path: Path,
) -> None:
    deeds = (
        "os.link(__file__, 'kept.py')",
        "os.chmod(__file__, 0)",
        "os.remove(__file__); os.mkdir(__file__)",
        "open(__file__, 'a').write('\\n' * 9999)",
        "os.rename(__file__, 'moved.py')",
        "os.truncate(__file__, 0)",
    )
    look = "print(os.stat(__file__).st_size == len(open(__file__).read()), 'look' in open(__file__).read())"
    with SandboxCommandLineCodeExecutor(work_dir=tmp_path) as executor:
        files = set[str]()
        for deed in deeds:
            for code in (
                f"import os\nprint(os.stat(__file__).st_ino, os.stat(__file__).st_nlink)\n{deed}",
                f"import os  # look\n{look}",
            ):
                result = executor.execute_code_blocks([CodeBlock(code, "python")])
                assert result.exit_code == 0, result.output
                if "look" in code:
                    assert result.output == "True True\n"
                else:
                    files.add(result.output)
        # Or nothing of this was put to the test.
        assert len(files) < len(deeds)
        assert all(file.endswith(" 2\n") for file in files)
    assert "# look" not in (tmp_path / "kept.py").read_text()
    assert "# look" not in (tmp_path / "moved.py").read_text()
