"""What hostile blocks leave in their folders does not block, crash or mislead the caller."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from cellblock import CodeBlock, Limits, WorkspaceError
from cellblock.executors.workspace.workspace import Workspace
from tests.sandbox.probes import checked_output, output_of, sandbox

pytestmark = pytest.mark.depends_on_user

# Each creates something under a name that the caller will write to.
IN_THE_WAY = {
    "a pipe": "import os; os.mkfifo('x.py')",
    "a socket": "import socket; socket.socket(socket.AF_UNIX).bind('x.py')",
    "a link to a pipe": "import os; os.mkfifo('p'); os.symlink('p', 'x.py')",
    "a link to itself": "import os; os.symlink('x.py', 'x.py')",
    "a broken link": "import os; os.symlink('missing', 'x.py')",
    "a file that is not writable": "import os; open('x.py', 'w'); os.chmod('x.py', 0)",
}


def test_block_files_replace_what_blocks_have_left(tmp_path: Path) -> None:
    with sandbox(tmp_path) as executor:
        for number, code in enumerate(IN_THE_WAY.values()):
            checked_output(executor, code.replace("x.py", f"x{number}.py"))
            named = f"# filename: x{number}.py\nprint({number})"
            assert checked_output(executor, named) == str(number), code


def test_block_file_is_not_written_through_a_link_to_outside(tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (work := tmp_path / "work").mkdir()
    with sandbox(work) as executor:
        for link in (str(outside), "../outside", "/proc/self/cwd/../outside"):
            for name, target in (("x.py", f"{link}/made.py"), ("x.py/made.py", link)):
                checked_output(executor, f"import os; os.symlink({target!r}, 'x.py')")
                block = CodeBlock(f"# filename: {name}\nprint('ran')", "python")
                result = executor.execute_code_blocks([block])
                assert (result.exit_code, result.output) in (
                    (1, "Filename is not in the workspace"),
                    (0, "ran\n"),  # a link without a target outside the sandbox is replaced
                ), (name, target)
                checked_output(executor, "import os; os.path.islink('x.py') and os.unlink('x.py')")
                checked_output(executor, "import shutil; shutil.rmtree('x.py', True)")
                (work / "x.py").unlink(missing_ok=True)
    assert list(outside.iterdir()) == []


def test_inaccessible_folder_does_not_stop_the_executor(tmp_path: Path) -> None:
    with sandbox(tmp_path) as executor:
        checked_output(executor, "import os; os.mkdir('d', 0)")
        if os.geteuid() != 0:
            with pytest.raises(WorkspaceError, match="d/x.py cannot be written"):
                output_of(executor, "# filename: d/x.py\nprint('ran')")
        assert checked_output(executor, "print('next')") == "next"


NAMES = r"""
import os
names = [b"a\nb", b"\xff\xfe", b"\x1b[31mred", b"-rf", b" ", b"*"]
names += [b"\xe2\x80\xae", b"n" * 255, b"..x"]
for name in names:
    open(name, "w").close()
os.mkdir(b"\xff.d"); open(b"\xff.d/\xfe", "w").close()
"""


def test_file_names_with_any_bytes_are_reported_as_text(tmp_path: Path) -> None:
    with sandbox(tmp_path) as executor:
        result = executor.execute_code_blocks([CodeBlock(NAMES, "python")])
        assert result.exit_code == 0
        assert {"a\nb", "-rf", "*", "n" * 255, "..x", "\ufffd\ufffd", "\ufffd.d/\ufffd"} <= set(
            result.files
        ) | {"..x"}
        "".join(result.files).encode()


MANY = "import os\nfor n in range(12000):\n  os.mknod(f'{n:x}')"


def test_very_many_files_do_not_delay_the_caller() -> None:
    with sandbox() as executor:
        checked_output(executor, MANY)
        assert checked_output(executor, "print('next')") == "next"
        folder = Path(executor.work_dir)
    assert not folder.exists()


DEEP = """
import os
os.chdir({folder!r})
for _ in range(1500):
    os.mkdir("d" * 50)
    os.chdir("d" * 50)
open("bottom", "w").close()
"""
INACCESSIBLE = """
import os
path = {folder!r}
paths = [path := path + "/closed" for _ in range(30)]
for path in paths:
    os.mkdir(path)
open(paths[-1] + "/bottom", "w").close()
for path in reversed(paths):
    os.chmod(path, 0)
"""
UNUSUAL = """
import os, socket
os.chdir({folder!r})
os.mkfifo("pipe"); os.symlink("/etc", "link"); os.symlink("round", "round")
os.mkdir("r"); open("r/file", "w"); os.chmod("r", 0o500); os.symlink("r", "link to r")
socket.socket(socket.AF_UNIX).bind("socket")
os.chmod(".", 0)
"""


@pytest.mark.slow
def test_temporary_folders_are_removed_whatever_they_contain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for code in (DEEP, INACCESSIBLE, UNUSUAL):
        with sandbox() as executor:
            for folder in ("/home/cell", "/workspace"):
                checked_output(executor, code.replace("{folder!r}", repr(folder)))
            kinds = {path.name.rpartition("-")[0] for path in tmp_path.iterdir()}
            assert kinds == {"cellblock-work", "cellblock-scratch"}
        assert list(tmp_path.iterdir()) == [], code


def test_removal_of_temporary_folders_does_not_follow_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (outside := tmp_path / "outside").mkdir()
    (outside / "kept").touch(mode=0o400)
    outside.chmod(0o500)
    with sandbox() as executor:
        checked_output(
            executor,
            f"import os; os.symlink({str(outside)!r}, 'l'); os.mkdir('d', 0); os.chmod('.', 0)",
        )
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500
    assert stat.S_IMODE((outside / "kept").stat().st_mode) == 0o400
    assert os.listdir(tmp_path) == ["outside"]


WRITE_FILES = """
for n in range(100):
    f = open(str(n), "wb"); f.write(bytes(1 << 24)); f.flush(); os.fsync(f.fileno())
"""
DISK = Limits(written_bytes=64 << 20)
# Code that fills something up, the limit, and the outcome.
FULL = {
    "a disk, by writing": (f"import os\n{WRITE_FILES}", DISK, "killed"),
    "a disk, as a process whose name is not text": (
        f"import ctypes, os\nctypes.CDLL(None).prctl(15, b'\\xff', 0, 0, 0)\n{WRITE_FILES}",
        DISK,
        "killed",
    ),
    "a disk, by asking for space": (
        "import os\nfor n in range(8):\n"
        "  os.posix_fallocate(os.open(str(n), 66), 0, 1 << 26)\n  os.sync()",
        DISK,
        "killed",
    ),
    "/tmp": ("open('/tmp/x', 'wb').write(bytes(1 << 25))", Limits(tmp_bytes=1 << 24), "error"),
    "/dev/shm": (
        "open('/dev/shm/x', 'wb').write(bytes(1 << 25))",
        Limits(tmp_bytes=1 << 24),
        "error",
    ),
    "the names in /tmp": (
        "import os\nfor n in range(210000):\n  os.mknod(f'/tmp/{n:x}')",
        Limits(),
        "error",
    ),
    "one file": ("open('x', 'wb').write(bytes(1 << 25))", Limits(file_bytes=1 << 24), "error"),
    "descriptors": ("import os\nwhile True:\n  os.pipe()", Limits(open_files=100), "error"),
}


@pytest.mark.parametrize("name", FULL)
def test_block_cannot_fill(name: str, tmp_path: Path) -> None:
    code, limits, outcome = FULL[name]
    with sandbox(tmp_path, limits=limits) as executor:
        result = executor.execute_code_blocks([CodeBlock(code, "python")])
        assert (result.outcome, result.exit_code != 0) == (outcome, True), result.output
        assert checked_output(executor, "open('/tmp/y', 'w').write('y'); print('next')") == "next"
    if name == "a disk, by asking for space":
        assert sum(entry.stat().st_blocks * 512 for entry in tmp_path.iterdir()) < 512 << 20


def test_process_count_is_limited_and_all_processes_are_ended() -> None:
    bomb = "import os\nwhile True:\n  try:\n    os.fork()\n  except OSError:\n    os._exit(7)"
    with sandbox(limits=Limits(processes=60)) as executor:
        result = executor.execute_code_blocks([CodeBlock(bomb, "python")])
        assert result.exit_code != 0
        count = "import glob; print(len(glob.glob('/proc/[0-9]*')))"
        assert checked_output(executor, count) == "2"


def test_crash_leaves_no_core_dump(tmp_path: Path) -> None:
    with sandbox(tmp_path) as executor:
        result = executor.execute_code_blocks([CodeBlock("import os; os.abort()", "python")])
        assert result.exit_code == 128 + 6
        checked_output(
            executor, "import resource; assert resource.getrlimit(resource.RLIMIT_CORE)[1] < 4096"
        )
    assert list(tmp_path.iterdir()) == []


def refuse(*_: object) -> None:
    raise AssertionError("the caller wrote the file of a block")


@pytest.mark.parametrize(
    ("language", "code"), [("python", "print(open(__file__).read())"), ("sh", 'cat "$0"')]
)
def test_server_writes_the_file_of_a_block(
    language: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "write_temporary", refuse)
    with sandbox(work_dir=tmp_path) as executor:
        assert executor.execute_code_blocks([CodeBlock(code, language)]).output.strip() == code
    assert list(tmp_path.iterdir()) == []


def taken(*_: object, **_named: object) -> str:
    return "taken.py"


def leave(*_: object) -> None:
    """Do nothing, instead of removing a file."""


@pytest.mark.parametrize("language", ["python", "sh"])
def test_error_names_the_file_that_the_server_cannot_write(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken.py").write_text("theirs")
    with sandbox(work_dir=tmp_path) as executor:
        assert output_of(executor, "print(1)") == "1\n"
        monkeypatch.setattr(Workspace, "temporary_name", taken)
        monkeypatch.setattr(Workspace, "remove", leave)
        for _ in range(3):
            with pytest.raises(WorkspaceError, match=r"taken\.py cannot be written: File exists"):
                executor.execute_code_blocks([CodeBlock("echo 1", language)])
        monkeypatch.undo()
        assert output_of(executor, "print(2)") == "2\n"
    assert (tmp_path / "taken.py").read_text() == "theirs"


@pytest.mark.parametrize("letter", ["x", "é"])
def test_code_of_any_length_runs_and_is_in_its_file(letter: str) -> None:
    shown = "print(len(text), text in open(__file__, encoding='utf-8').read())"
    with sandbox() as executor:
        # In characters: up to twice as many bytes.
        for length in (1, 1 << 14, (1 << 15) - 70, 1 << 15, 1 << 16, 1 << 20):
            code = f"text = '{letter * length}'\n{shown}"
            assert output_of(executor, code) == f"{length} True\n"
