"""Memory that belongs to no process, and many small processes, do not end a box."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellblock import BoxGone, Limits, Sandbox
from cellblock.sandbox import cgroups
from tests.suite.tiers import exhaustive

pytestmark = pytest.mark.depends_on_user
MIB = 1 << 20
LIMITS = Limits(memory_bytes=128 * MIB)
SEGMENTS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
for _ in range(20):
    number = libc.shmget(0, 16 << 20, 0o600)
    if number < 0:
        print("refused", ctypes.get_errno())
        break
    place = libc.shmat(number, None, 0)
    ctypes.memset(place, 1, 16 << 20)
    libc.shmdt(ctypes.c_void_p(place))
"""
PROGRAMS = {
    "a file without a name": (
        "import os\nfile = os.memfd_create('x')\n"
        "for _ in range(40): os.write(file, bytes(10 << 20))"
    ),
    "segments": SEGMENTS,
    "entries": "import os\nos.chdir('/tmp')\nfor n in range(10**6): open(str(n), 'w').close()",
    "processes": (
        "import os, time\n"
        "for _ in range(100):\n"
        "    if os.fork() == 0:\n"
        "        data = bytearray(b'x') * (3 << 20)\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "os.waitpid(-1, 0)"
    ),
}
# It makes itself as little a target of the OOM killer as what holds the box.
HOSTILE = PROGRAMS["processes"].replace(
    "import os, time\n", "import os, time\nopen('/proc/self/oom_score_adj', 'w').write('0')\n"
)


@pytest.fixture
def needs_groups(needs_sandbox: None) -> None:
    if not cgroups.find_cgroups().memory:
        pytest.skip("without control groups, memory is checked from time to time")


@pytest.mark.parametrize("name", exhaustive(PROGRAMS, keep=2))
async def test_memory_of_no_process_does_not_end_the_box(name: str, needs_groups: None) -> None:
    async with Sandbox(limits=LIMITS) as box:
        await box.run_code("kept = 41")
        checkpoint = await box.checkpoint()
        (fork,) = await box.fork(1)
        await box.exec(["python3", "-c", PROGRAMS[name]])
        await box.restore(checkpoint, end_commands=True)
        for each in (box, fork):
            assert (await each.exec("echo alive")).stdout == b"alive\n"
            result = await each.run_code("data = b'x' * (20 << 20); kept")
            assert (result.exit_code, result.output) == (0, "41\n"), result
        await fork.close()


async def test_segments_of_a_block_do_not_end_the_session(needs_groups: None) -> None:
    async with Sandbox(limits=LIMITS) as box:
        await box.run_code("kept = 41")
        await box.run_code(SEGMENTS)
        assert (await box.run_code("kept")).output == "41\n"


async def use_up(box: Sandbox) -> None:
    """Run a hostile program until the box has ended."""
    for _ in range(20):
        try:
            await box.exec(["python3", "-c", HOSTILE])
        except BoxGone:
            raise
        except OSError:  # what starts commands was killed
            pass


async def test_a_box_that_has_run_out_of_memory_says_so(needs_groups: None) -> None:
    async with Sandbox(limits=LIMITS) as box:
        with pytest.raises(BoxGone, match=r"out of memory.*134217728 bytes \(memory_bytes\)"):
            await use_up(box)
        with pytest.raises(BoxGone, match="out of memory"):
            await box.exec("true")


@pytest.mark.parametrize("folder", exhaustive([".", "/home/cell"]))
async def test_a_work_folder_in_memory_does_not_use_up_the_memory(
    folder: str, needs_sandbox: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/dev/shm")
    async with Sandbox(limits=LIMITS) as box:
        await box.run_code("kept = 41")
        for number in range(3):
            result = await box.exec(f"head -c 100M /dev/zero > {folder}/{number}")
            assert (result.exit_code, result.limit) == (137, "memory_bytes"), result
            assert b"work folder" in result.stderr, result
        for number in range(3):
            path = str(Path(folder, str(number)))
            if await box.files.exists(path):
                await box.files.remove(path)
        assert (await box.exec("echo alive")).stdout == b"alive\n"
        assert (await box.run_code("kept")).output == "41\n"


async def test_files_make_the_box_useless_if_their_folders_are_as_large_as_the_memory(
    needs_groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limits, "memory_file_bytes", property(lambda limits: limits.tmp_bytes))
    async with Sandbox(limits=LIMITS) as box:
        with pytest.raises((BoxGone, OSError)):  # it is gone, or starts no command any more
            await fill(box)


async def fill(box: Sandbox) -> None:
    for _ in range(10):
        await box.exec("head -c 200M /dev/zero >> /tmp/large")
