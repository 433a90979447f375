"""What hostile blocks leave in their folders, or send out, does not hang, crash or mislead the caller."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from cellblock import CodeBlock, Limits, WorkspaceError
from cellblock.executors.workspace.workspace import Workspace
from tests.sandbox.probes import done, said, sandbox

# Leave things under names that the caller is going to use, then let him write there.
IN_THE_WAY = {
    "a pipe": "import os; os.mkfifo('x.py')",
    "a socket": "import socket; socket.socket(socket.AF_UNIX).bind('x.py')",
    "a link to a pipe": "import os; os.mkfifo('p'); os.symlink('p', 'x.py')",
    "a link in a circle": "import os; os.symlink('x.py', 'x.py')",
    "a broken link": "import os; os.symlink('missing', 'x.py')",
    "a file that nobody may write": "import os; open('x.py', 'w'); os.chmod('x.py', 0)",
}


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_a_file_is_written_over(name: str, tmp_path: Path) -> None:
    with sandbox(tmp_path) as executor:
        done(executor, IN_THE_WAY[name])
        assert done(executor, "# filename: x.py\nprint('ran')") == "ran"


@pytest.mark.parametrize("link", ["{outside}", "../outside", "/proc/self/cwd/../outside"])
@pytest.mark.parametrize("name", ["x.py", "x.py/made.py"])
def test_a_file_is_not_written_through_a_link_that_leads_out(
    link: str, name: str, tmp_path: Path
) -> None:
    (outside := tmp_path / "outside").mkdir()
    (work := tmp_path / "work").mkdir()
    with sandbox(work) as executor:
        target = link.format(outside=outside) + ("" if "/" in name else "/made.py")
        done(executor, f"import os; os.symlink({target!r}, 'x.py')")
        result = executor.execute_code_blocks(
            [CodeBlock(f"# filename: {name}\nprint('ran')", "python")]
        )
        assert (result.exit_code, result.output) in (
            (1, "Filename is not in the workspace"),
            (0, "ran\n"),  # a link that leads nowhere outside the sandbox, written over
        )
    assert list(outside.iterdir()) == []


def test_a_folder_that_nobody_may_enter_does_not_stop_the_executor(tmp_path: Path) -> None:
    with sandbox(tmp_path) as executor:
        done(executor, "import os; os.mkdir('d', 0)")
        if os.geteuid() != 0:
            with pytest.raises(WorkspaceError, match="d/x.py cannot be written"):
                said(executor, "# filename: d/x.py\nprint('ran')")
        assert done(executor, "print('next')") == "next"


NAMES = r"""
import os
for name in (b"a\nb", b"\xff\xfe", b"\x1b[31mred", b"-rf", b" ", b"*", b"\xe2\x80\xae", b"n" * 255, b"..x"):
    open(name, "w").close()
os.mkdir(b"\xff.d"); open(b"\xff.d/\xfe", "w").close()
"""


def test_names_of_any_kind_are_told_of_as_text(tmp_path: Path) -> None:
    with sandbox(tmp_path) as executor:
        result = executor.execute_code_blocks([CodeBlock(NAMES, "python")])
        assert result.exit_code == 0
        assert {"a\nb", "-rf", "*", "n" * 255, "..x", "\ufffd\ufffd", "\ufffd.d/\ufffd"} <= set(
            result.files
        ) | {"..x"}
        "".join(result.files).encode()


MANY = "import os\nfor n in range(12000):\n  os.mknod(f'{n:x}')"


def test_very_many_files_do_not_hold_the_caller_up() -> None:
    with sandbox() as executor:
        done(executor, MANY)
        started = time.monotonic()
        assert done(executor, "print('next')") == "next"
        assert time.monotonic() - started < 10
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
SHUT = """
import os
path = {folder!r}
paths = [path := path + "/shut" for _ in range(30)]
for path in paths:
    os.mkdir(path)
open(paths[-1] + "/bottom", "w").close()
for path in reversed(paths):
    os.chmod(path, 0)
"""
ODD = """
import os, socket
os.chdir({folder!r})
os.mkfifo("pipe"); os.symlink("/etc", "link"); os.symlink("round", "round"); os.mkdir("r"); open("r/file", "w")
os.chmod("r", 0o500); socket.socket(socket.AF_UNIX).bind("socket"); os.symlink("r", "link to r")
os.chmod(".", 0)
"""


@pytest.mark.parametrize("folder", ["/workspace", "/home/cell"])
@pytest.mark.parametrize("code", [DEEP, SHUT, ODD], ids=["deep", "shut", "odd"])
def test_our_temporary_folders_go_whatever_is_in_them(
    code: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with sandbox() as executor:
        done(executor, code.replace("{folder!r}", repr(folder)))
        assert len(list(tmp_path.iterdir())) == 3, (
            "not the work folder, its own things, and what the server shows its zygote"
        )
    assert list(tmp_path.iterdir()) == []


def test_removing_our_folders_touches_nothing_that_links_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (outside := tmp_path / "outside").mkdir()
    (outside / "kept").touch(mode=0o400)
    outside.chmod(0o500)
    with sandbox() as executor:
        done(
            executor,
            f"import os; os.symlink({str(outside)!r}, 'l'); os.mkdir('d', 0); os.chmod('.', 0)",
        )
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500
    assert stat.S_IMODE((outside / "kept").stat().st_mode) == 0o400
    assert os.listdir(tmp_path) == ["outside"]


# What fills something up, under which limit, and the outcome.
FULL = {
    "a disk, by writing": (
        "import os\nfor n in range(100):\n  f = open(str(n), 'wb'); f.write(bytes(1 << 24)); f.flush(); os.fsync(f.fileno())",
        Limits(written_bytes=64 << 20),
        "killed",
    ),
    "a disk, under a name that is no text": (
        "import ctypes, os\nctypes.CDLL(None).prctl(15, b'\\xff', 0, 0, 0)\n"
        "for n in range(100):\n  f = open(str(n), 'wb'); f.write(bytes(1 << 24)); f.flush(); os.fsync(f.fileno())",
        Limits(written_bytes=64 << 20),
        "killed",
    ),
    "a disk, by asking for space": (
        "import os\nfor n in range(8):\n  os.posix_fallocate(os.open(str(n), 66), 0, 1 << 26)\n  os.sync()",
        Limits(written_bytes=64 << 20),
        "killed",
    ),
    "/tmp": ("open('/tmp/x', 'wb').write(bytes(1 << 25))", Limits(tmp_bytes=1 << 24), "error"),
    "/dev/shm": ("open('/dev/shm/x', 'wb').write(bytes(1 << 25))", Limits(tmp_bytes=1 << 24), "error"),
    "the names in /tmp": ("import os\nfor n in range(210000):\n  os.mknod(f'/tmp/{n:x}')", Limits(), "error"),
    "one file": ("open('x', 'wb').write(bytes(1 << 25))", Limits(file_bytes=1 << 24), "error"),
    "descriptors": ("import os\nwhile True:\n  os.pipe()", Limits(open_files=100), "error"),
}  # fmt: skip


@pytest.mark.parametrize("name", FULL)
def test_a_block_cannot_fill(name: str, tmp_path: Path) -> None:
    code, limits, outcome = FULL[name]
    with sandbox(tmp_path, limits=limits) as executor:
        result = executor.execute_code_blocks([CodeBlock(code, "python")])
        assert (result.outcome, result.exit_code != 0) == (outcome, True), result.output
        assert done(executor, "open('/tmp/y', 'w').write('y'); print('next')") == "next"
    if name == "a disk, by asking for space":
        assert sum(entry.stat().st_blocks * 512 for entry in tmp_path.iterdir()) < 512 << 20


def test_processes_are_bounded_and_gone_afterwards() -> None:
    bomb = "import os\nwhile True:\n  try:\n    os.fork()\n  except OSError:\n    os._exit(7)"
    with sandbox(limits=Limits(processes=60)) as executor:
        result = executor.execute_code_blocks([CodeBlock(bomb, "python")])
        assert result.exit_code != 0
        count = "import glob; print(len(glob.glob('/proc/[0-9]*')))"
        assert done(executor, count) == "2"


def test_a_crash_leaves_no_core(tmp_path: Path) -> None:
    with sandbox(tmp_path) as executor:
        result = executor.execute_code_blocks([CodeBlock("import os; os.abort()", "python")])
        assert result.exit_code == 128 + 6
        done(executor, "import resource; assert resource.getrlimit(resource.RLIMIT_CORE)[1] < 4096")
    assert list(tmp_path.iterdir()) == []


def refuse(*_: object) -> None:
    raise AssertionError("the caller has written the file of a block that may not begin for long")


@pytest.mark.parametrize(
    ("language", "code"), [("python", "print(open(__file__).read())"), ("sh", 'cat "$0"')]
)
def test_the_server_writes_the_file_of_a_block(
    language: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspace, "write_temporary", refuse)
    with sandbox(work_dir=tmp_path) as executor:
        assert executor.execute_code_blocks([CodeBlock(code, language)]).output.strip() == code
    assert list(tmp_path.iterdir()) == []


def taken(*_: object) -> str:
    return "taken.py"


def leave(*_: object) -> None:
    """Remove nothing."""


@pytest.mark.parametrize("language", ["python", "sh"])
def test_a_file_that_the_server_cannot_write_is_named(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken.py").write_text("theirs")
    with sandbox(work_dir=tmp_path) as executor:
        assert said(executor, "print(1)") == "1\n"
        monkeypatch.setattr(Workspace, "temporary_name", taken)
        monkeypatch.setattr(Workspace, "remove", leave)
        for _ in range(3):
            with pytest.raises(WorkspaceError, match=r"taken\.py cannot be written: File exists"):
                executor.execute_code_blocks([CodeBlock("echo 1", language)])
        monkeypatch.undo()
        assert said(executor, "print(2)") == "2\n"
    assert (tmp_path / "taken.py").read_text() == "theirs"


@pytest.mark.parametrize("letter", ["x", "é"])
def test_code_of_any_length_runs_and_is_in_its_file(letter: str) -> None:
    with sandbox() as executor:
        for length in (
            1,
            1 << 14,
            (1 << 15) - 70,
            1 << 15,
            1 << 16,
            1 << 20,
        ):  # in bytes up to twice as much
            code = f"text = '{letter * length}'\nprint(len(text), text in open(__file__, encoding='utf-8').read())"
            assert said(executor, code) == f"{length} True\n"
