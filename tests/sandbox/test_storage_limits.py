"""What a block may keep in its work folder: bytes and files, on a disk and in memory (tmpfs)."""

from __future__ import annotations

import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cellblock import CodeBlock, CodeResult, Ended, Limits, Output
from cellblock.sandbox import cgroups
from cellblock.sync import SandboxSessionCodeExecutor, SyncCodeExecutor
from tests.sandbox.probes import MARK, checked_output, local, output_of, sandbox
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.depends_on_user
MIB = 1 << 20
LIMITS = Limits(written_bytes=64 * MIB, memory_bytes=None)
ENOUGH = "import os, time\nblock = bytes(1 << 24)\n"
# Each tries to keep more than a gigabyte.
WRITERS = {
    "many files": "for n in range(100): open(str(n), 'wb', 0).write(block)",
    "one file": "file = open('x', 'wb', 0)\nfor _ in range(100): file.write(block)",
    "a deep folder": (
        "for _ in range(150): os.mkdir('d'); os.chdir('d')\n"
        "for n in range(100): open(str(n), 'wb', 0).write(block)"
    ),
    "a file without a name": (
        "file = open('x', 'wb', 0)\nos.unlink('x')\nfor _ in range(100): file.write(block)"
    ),
    "the home folder": "for n in range(100): open(f'/home/cell/{n}', 'wb', 0).write(block)",
    "a handler of interrupts": (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "for n in range(100): open(str(n), 'wb', 0).write(block)"
    ),
}


@pytest.fixture(params=["tmpfs", "disk"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Yield a folder on a filesystem of each kind, which also has the temporary folders."""
    if request.param == "tmpfs":
        yield request.getfixturevalue("in_memory")
        return
    (work := tmp_path / "work").mkdir()
    yield work


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a folder on a tmpfs, which also has the temporary folders."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as path:
        monkeypatch.setattr("tempfile.tempdir", path)
        (work := Path(path) / "work").mkdir()
        yield work


def run(executor: SyncCodeExecutor, code: str) -> CodeResult:
    return executor.execute_code_blocks([CodeBlock(code, "python")])


def megabytes(folder: Path) -> int:
    done = subprocess.run(["du", "-sm", str(folder)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


KINDS = [sandbox, SandboxSessionCodeExecutor]


@pytest.mark.parametrize(
    ("name", "kind"),
    exhaustive(
        itertools.product(WRITERS, KINDS),
        keep=lambda case: case[1] is sandbox or case[0] == "one file",
    ),
)
def test_writer_is_ended_near_the_limit(
    name: str, kind: Callable[..., SyncCodeExecutor], folder: Path
) -> None:
    with kind(work_dir=folder, limits=LIMITS) as executor:
        result = run(executor, f"{ENOUGH}{WRITERS[name]}\ntime.sleep(30)")
        assert (result.outcome, result.limit) == ("killed", "written_bytes"), result
        assert megabytes(folder) < 400
        assert checked_output(executor, "print('next')") == "next"


def test_what_others_make_is_not_the_blocks(folder: Path) -> None:
    (others := folder.with_name("others")).mkdir()
    (folder / "old").write_bytes(bytes(100 * MIB))
    waits = "import os\nprint('started')\nwhile not os.path.exists('go'): pass\nprint('ended')"
    with sandbox(folder, limits=Limits(written_bytes=64 * MIB, files=100)) as executor:
        for event in executor.execute_stream([CodeBlock(waits, "python")]):
            if isinstance(event, Output) and "started" in event.text:
                (others / "large").write_bytes(bytes(100 * MIB))
                for number in range(200):
                    (others / str(number)).touch()
                (folder / "go").touch()
            if isinstance(event, Ended):
                assert (event.outcome, event.limit) == ("ok", None)


def test_removed_files_in_memory_and_rewritten_ones_do_not_count(in_memory: Path) -> None:
    code = f"{ENOUGH}for n in range(20): open('x', 'wb').write(block * 2); os.remove('x')\n"
    code += "for n in range(300): open('x', 'wb').close(); os.remove('x')\nprint('done')"
    with sandbox(in_memory, limits=Limits(written_bytes=64 * MIB, files=100)) as executor:
        assert checked_output(executor, code) == "done"


def test_files_of_one_block_in_memory_leave_the_next_its_memory(in_memory: Path) -> None:
    large = "x = bytearray(b'x') * (150 << 20)\nprint(len(x) >> 20)"
    with sandbox(in_memory, limits=Limits(memory_bytes=200 * MIB)) as executor:
        checked_output(executor, "open('x', 'wb').write(bytes(150 << 20))")
        assert [checked_output(executor, large) for _ in range(4)] == ["150"] * 4


@pytest.mark.parametrize("kind", [sandbox, local, SandboxSessionCodeExecutor])
def test_too_many_files_are_reported_also_after_the_block_has_ended(
    kind: Callable[..., SyncCodeExecutor], in_memory: Path
) -> None:
    with kind(work_dir=in_memory, limits=Limits(files=10)) as executor:
        result = run(executor, "for n in range(30): open(str(n), 'w').close()")
        assert (result.exit_code, result.outcome, result.limit) == (137, "killed", "files")
        assert "more than the limit of 10 files" in result.output


def no_cgroups(_limits: Limits) -> None:
    """Plan as on a machine without control groups."""


UNBOUND_MEMORY = f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
made = 0
try:
    os.memfd_create("x")
    made += 1
except OSError:
    pass
made += libc.shmget(0, 1 << 20, 0o600) >= 0
print("{MARK}" if made else "refused")
"""


@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_no_process_is_refused_without_control_groups(
    kind: Callable[..., SyncCodeExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    with kind() as executor:
        if cgroups.find_cgroups().memory:
            assert output_of(executor, UNBOUND_MEMORY).strip() == MARK
    monkeypatch.setattr("cellblock.backends.sandbox.plan_cgroups", no_cgroups)
    with kind(limits=Limits(open_files=1000)) as executor:
        assert output_of(executor, UNBOUND_MEMORY).strip() == "refused"
    with kind(limits=Limits(memory_bytes=None)) as executor:
        assert output_of(executor, UNBOUND_MEMORY).strip() == MARK
