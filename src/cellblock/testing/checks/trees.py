"""Whatever a block starts is dead when its result is there."""

from __future__ import annotations

import asyncio
import time

from ...blocks import CodeBlock
from ..subject import Subject, assert_dead, check, check_fresh, heartbeat, until, until_dead

_SPAWN = """
import subprocess, sys, time, pathlib
{how}
while not pathlib.Path("life").exists(): time.sleep(0.01)
"""


async def _outlived(subject: Subject, how: str, after: str = "", seconds: float = 20) -> None:
    """Run a block that starts a living process in the way `how`; it must be dead, and must not have held the result up."""
    async with subject.executor(timeout=60) as (executor, folder):
        (folder / "beat.py").write_text(heartbeat("life"))
        started = time.monotonic()
        result = await executor.execute_code_blocks(
            [CodeBlock(_SPAWN.format(how=how) + after, "python")]
        )
        assert result.exit_code == 0, result.output
        assert time.monotonic() - started < seconds, (
            "the result waited for a process that was left behind"
        )
        await assert_dead(folder / "life")


@check
async def a_child_that_outlives_its_block_is_ended(subject: Subject) -> None:
    await _outlived(subject, "subprocess.Popen([sys.executable, 'beat.py'])")


@check
async def a_grandchild_that_holds_the_pipe_is_ended(subject: Subject) -> None:
    await _outlived(
        subject, "subprocess.Popen(['sh', '-c', sys.executable + ' beat.py & sleep 1000 & exit 0'])"
    )


@check
async def a_daemon_that_closed_the_pipes_is_ended(subject: Subject) -> None:
    how = """
nul = subprocess.DEVNULL
subprocess.Popen([sys.executable, 'beat.py'], stdin=nul, stdout=nul, stderr=nul, start_new_session=True)
"""
    await _outlived(subject, how)


@check
async def a_daemon_that_keeps_the_pipes_is_ended(subject: Subject) -> None:
    how = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, 'beat.py'])
    os._exit(0)
os.wait()
"""
    await _outlived(subject, how)


@check
async def a_background_job_of_a_shell_is_ended(subject: Subject) -> None:
    async with subject.executor() as (executor, folder):
        (folder / "beat.py").write_text(heartbeat("life"))
        code = "nohup python3 beat.py & \nwhile [ ! -e life ]; do sleep 0.01; done\necho done"
        result = await executor.execute_code_blocks([CodeBlock(code, "sh")])
        assert result.exit_code == 0, result
        assert "done" in result.output
        await assert_dead(folder / "life")


@check
async def what_ignores_sigterm_ends_at_the_time_limit(subject: Subject) -> None:
    code = """
import os, signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
for name in ("one", "two", "three"):
    if os.fork() == 0:
        os.setsid()
        break
else:
    name = "zero"
""" + heartbeat("?").replace("'?'", "name")
    async with subject.executor(timeout=1.5) as (executor, folder):
        started = time.monotonic()
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.exit_code == 124, result
        assert time.monotonic() - started < 20
        for name in ("zero", "one", "two", "three"):
            await assert_dead(folder / name)


@check
async def stopped_processes_are_ended(subject: Subject) -> None:
    code = """
import os, signal, time
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    open("woken", "w").close()
    time.sleep(1000)
os.waitpid(child, os.WUNTRACED)
print("stopped", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
    async with subject.executor(timeout=1) as (executor, folder):
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert (result.exit_code, result.stdout) == (124, "stopped\n"), result
        assert not (folder / "woken").exists(), "a stopped process ran on"


@check
async def processes_that_fork_without_end_are_ended(subject: Subject) -> None:
    code = """
import os, time
end = time.monotonic() + 3
while time.monotonic() < end:
    if os.fork() != 0:
        os._exit(0)
    with open("life", "a") as file: file.write("x")
"""
    async with subject.executor(timeout=20) as (executor, folder):
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.exit_code == 0, result
        await asyncio.sleep(0)
        size = (folder / "life").stat().st_size if (folder / "life").exists() else 0
        await asyncio.sleep(0.3)
        assert size == ((folder / "life").stat().st_size if (folder / "life").exists() else 0), (
            "it forks on"
        )


@check
async def closed_streams_do_not_end_a_block(subject: Subject) -> None:
    code = """
import os, time
print("before", flush=True)
os.close(1); os.close(2)
time.sleep(0.5)
open("after", "w").close()
os._exit(5)
"""
    async with subject.executor() as (executor, folder):
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert (result.exit_code, result.output) == (5, "before\n"), result
        assert (folder / "after").exists()


@check
async def output_of_children_is_kept(subject: Subject) -> None:
    code = "import subprocess\nprint('a', flush=True)\nsubprocess.run(['sh', '-c', 'echo b; echo c >&2'])\nprint('d')"
    result = await subject.run(code)
    assert result.output == "a\nb\nc\nd\n"


@check_fresh
async def threads_and_processes_work(subject: Subject) -> None:
    code = """
import asyncio, concurrent.futures, multiprocessing, threading

def square(number):
    return number * number

async def main():
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.read()
    writer.close()
    server.close()

if __name__ == "__main__":
    threading.Thread(target=print, args=("thread",)).start()
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(pool.map(square, range(4)))
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        print(list(pool.map(square, range(3))))
    asyncio.run(main())
"""
    result = await subject.run(code)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == ["thread", "[0, 1, 4, 9]", "[0, 1, 4, 9]", "[0, 1, 4]"], (
        result.output
    )


@check
async def a_killed_owner_leaves_nothing(subject: Subject) -> None:
    import signal
    import sys
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="cellblock-check-", ignore_cleanup_errors=True) as name:
        folder, work_dir = Path(name), Path(name, "work")
        work_dir.mkdir()
        (folder / "tmp").mkdir()
        owner = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _OWNER,
            subject.factory,
            repr(subject.options),
            str(work_dir),
            env=_environment(folder),
        )
        try:
            await until((work_dir / "life").exists, "the owner's block runs", 30)
        finally:
            owner.send_signal(signal.SIGKILL)
            await owner.wait()
        await until(
            lambda: not list((folder / "tmp").iterdir()),
            f"temporary files go: {list((folder / 'tmp').iterdir())}",
        )
        await until_dead(work_dir / "life")


def _environment(folder: object) -> dict[str, str]:
    import os
    import sys

    return {
        **os.environ,
        "TMPDIR": f"{folder}/tmp",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


_OWNER = f"""
import ast, asyncio, sys
from cellblock import CodeBlock
from cellblock.testing.subject import Subject
factory, options, work_dir = sys.argv[1:]
executor = Subject(factory, ast.literal_eval(options)).make(work_dir=work_dir, timeout=600)
block = CodeBlock({"import os; os.setsid() if os.fork() == 0 else None" + heartbeat("life")!r}, "python")
asyncio.run(executor.execute_code_blocks([block]))
"""
