"""What a program leaves is not there for the next one: it is removed, or the executor replaced."""

from __future__ import annotations

import asyncio

import pytest

from cellblock import CodeBlock, SandboxCommandLineCodeExecutor
from cellblock.batch import Program, run_many
from cellblock.executors.places.clean_folders import CleanFolders

pytestmark = pytest.mark.depends_on_user
# Each leaves something in the work folder or the home folder, which `SEES` prints.
TRACES = {
    "a file": "open('a', 'w').close()",
    "a file at home": "import os; open(os.path.expanduser('~/a'), 'w').close()",
    "a mode": "import os; os.chmod('.', 0o700 if os.stat('.').st_mode & 7 else 0o755)",
    "an attribute": "import os; os.setxattr('.', 'user.a', b'1')",
    "an attribute at home": "import os; os.setxattr(os.path.expanduser('~'), 'user.a', b'1')",
    "a flag": "set_flag('.')",
    "a flag at home": "set_flag(os.path.expanduser('~'))",
    "a time at home": "import os; os.utime(os.path.expanduser('~'), (1, 1))",
    "a module": "import sys; open(sys.prefix + '/lib/a.py', 'w').close()",
}
SET_FLAG = """
import fcntl, os
def set_flag(folder):
    no_dump = (0x40).to_bytes(8, "little")
    fcntl.ioctl(os.open(folder, os.O_RDONLY), 0x40086602, no_dump)
"""
SEES = """
import fcntl, os, sys
found = []
for folder in (".", os.path.expanduser("~")):
    status = os.stat(folder)
    try:
        flags = fcntl.ioctl(os.open(folder, os.O_RDONLY), 0x80086601, bytes(8)).hex()
    except OSError:
        flags = ""
    names = [name for name in os.listdir(folder) if not name.endswith(".py")]
    found.append((names, status.st_mode, os.listxattr(folder), flags, status.st_mtime > 1))
found.append(sorted(os.listdir(sys.prefix + "/lib")))
print(found)
"""


async def run(executor: SandboxCommandLineCodeExecutor, code: str) -> str:
    result = await executor.execute_code_blocks([CodeBlock(f"{SET_FLAG}{code}", "python")])
    return result.output


@pytest.mark.parametrize("trace", TRACES)
async def test_folders_are_clean_or_not_used_again(trace: str) -> None:
    async with SandboxCommandLineCodeExecutor() as executor:
        folders = CleanFolders(executor.place)
        before = await run(executor, SEES)
        assert await folders.clean()
        output = await run(executor, TRACES[trace])
        if "not supported" in output or "Inappropriate ioctl" in output:
            pytest.skip(f"this file system keeps no such trace: {output.splitlines()[-1]}")
        assert output == ""
        assert await run(executor, SEES) != before  # it is seen
        assert not await folders.clean() or await run(executor, SEES) == before


def test_programs_of_a_batch_see_nothing_of_each_other() -> None:
    codes = [SEES, *(f"{SET_FLAG}{code}\n{SEES}" for code in TRACES.values()), SEES]

    async def outputs() -> list[str]:
        found = dict[str, str]()
        programs = [Program(id=str(number), code=code) for number, code in enumerate(codes)]
        async for verdict in run_many(programs, concurrency=1):
            found[verdict.id] = verdict.output
        return [found["0"], found[str(len(codes) - 1)]]

    first, last = asyncio.run(outputs())
    assert first == last
