"""Programs of this user in other processes, which attach to boxes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap

from cellblock.box.base import Box


async def run_in_other_process(text: str, *arguments: str) -> str:
    """Run a program whose `main` has `text` as its body. Return what it prints."""
    process = await start_other_process(text, *arguments)
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def start_other_process(text: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start a program whose `main` has `text` as its body, with its output in a pipe."""
    program = "\n".join(
        [
            "import asyncio, sys",
            "from cellblock import BoxGone, Sandbox",
            "async def main():",
            textwrap.indent(textwrap.dedent(text), "    "),
            "asyncio.run(main())",
        ]
    )
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def daemon_of(box: Box) -> int:
    """Return the process that has a kept box."""
    return box.session.place.require_connection().pid


async def wait_for_end(pid: int) -> None:
    """Wait until a process is gone, which is no child of this one."""
    while await asyncio.to_thread(is_running, pid):
        await asyncio.sleep(0.02)


def is_running(pid: int) -> bool:
    """Return True if a process runs, and is not just a zombie that nobody has waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False
