"""Every process that a block started has ended when its result is returned."""

from __future__ import annotations

import asyncio

from ...blocks import CodeBlock
from ..liveness import assert_dead, heartbeat, wait_until, wait_until_dead
from ..registry import check, check_fresh
from ..target import ConformanceTarget

_SPAWN = """
import subprocess, sys, time, pathlib
{how}
while not pathlib.Path("life").exists(): time.sleep(0.01)
"""


async def _check_child_is_ended(target: ConformanceTarget, how: str, after: str = "") -> None:
    """Run a block that starts a process with the code `how` and leaves it running.

    The process must be killed, and must not delay the result until the time limit.
    """
    async with target.executor(timeout=60) as (executor, folder):
        (folder / "beat.py").write_text(heartbeat("life"))
        result = await executor.execute_code_blocks(
            [CodeBlock(_SPAWN.format(how=how) + after, "python")]
        )
        assert result.exit_code == 0, result.output
        await assert_dead(folder / "life")


@check
async def child_process_left_running_is_killed(target: ConformanceTarget) -> None:
    await _check_child_is_ended(target, "subprocess.Popen([sys.executable, 'beat.py'])")


@check
async def grandchild_with_open_pipes_is_killed(target: ConformanceTarget) -> None:
    await _check_child_is_ended(
        target, "subprocess.Popen(['sh', '-c', sys.executable + ' beat.py & sleep 1000 & exit 0'])"
    )


@check
async def daemon_with_closed_pipes_is_killed(target: ConformanceTarget) -> None:
    how = """
nul = subprocess.DEVNULL
streams = {"stdin": nul, "stdout": nul, "stderr": nul}
subprocess.Popen([sys.executable, 'beat.py'], **streams, start_new_session=True)
"""
    await _check_child_is_ended(target, how)


@check
async def daemon_with_open_pipes_is_killed(target: ConformanceTarget) -> None:
    how = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, 'beat.py'])
    os._exit(0)
os.wait()
"""
    await _check_child_is_ended(target, how)


@check
async def shell_background_job_is_killed(target: ConformanceTarget) -> None:
    async with target.executor() as (executor, folder):
        (folder / "beat.py").write_text(heartbeat("life"))
        code = "nohup python3 beat.py & \nwhile [ ! -e life ]; do sleep 0.01; done\necho done"
        result = await executor.execute_code_blocks([CodeBlock(code, "sh")])
        assert result.exit_code == 0, result
        assert "done" in result.output
        await assert_dead(folder / "life")


@check
async def processes_that_ignore_signals_end_at_the_time_limit(target: ConformanceTarget) -> None:
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
    async with target.executor(timeout=2) as (executor, folder):
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.exit_code == 124, result
        await assert_dead(*(folder / name for name in ("zero", "one", "two", "three")))


@check
async def stopped_processes_are_killed(target: ConformanceTarget) -> None:
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
    async with target.executor(timeout=1) as (executor, folder):
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert (result.exit_code, result.stdout) == (124, "stopped\n"), result
        assert not (folder / "woken").exists(), "a stopped process was resumed"


@check
async def endlessly_forking_processes_are_killed(target: ConformanceTarget) -> None:
    code = """
import os, time
end = time.monotonic() + 5
while time.monotonic() < end:
    if os.fork() != 0:
        os._exit(0)
    with open("life", "a") as file: file.write("x")
"""
    async with target.executor(timeout=120) as (executor, folder):
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert result.exit_code == 0, result
        if (folder / "life").exists():
            await assert_dead(folder / "life")


@check
async def block_continues_after_closing_its_output(target: ConformanceTarget) -> None:
    code = """
import os, time
print("before", flush=True)
os.close(1); os.close(2)
time.sleep(0.2)
open("after", "w").close()
os._exit(5)
"""
    async with target.executor() as (executor, folder):
        result = await executor.execute_code_blocks([CodeBlock(code, "python")])
        assert (result.exit_code, result.output) == (5, "before\n"), result
        assert (folder / "after").exists()


@check
async def output_of_child_processes_is_kept(target: ConformanceTarget) -> None:
    code = "import subprocess\nprint('a', flush=True)\n"
    code += "subprocess.run(['sh', '-c', 'echo b; echo c >&2'])\nprint('d')"
    result = await target.run(code)
    assert result.output == "a\nb\nc\nd\n"


@check_fresh
async def threads_and_processes_work(target: ConformanceTarget) -> None:
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
    thread = threading.Thread(target=print, args=("thread",))
    thread.start()
    thread.join()
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(pool.map(square, range(4)))
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        print(list(pool.map(square, range(3))))
    asyncio.run(main())
"""
    result = await target.run(code)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == ["thread", "[0, 1, 4, 9]", "[0, 1, 4, 9]", "[0, 1, 4]"], (
        result.output
    )


@check
async def nothing_is_left_if_the_owner_process_is_killed(target: ConformanceTarget) -> None:
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
            target.factory,
            repr(target.options),
            str(work_dir),
            env=_environment(folder),
        )
        try:
            await wait_until((work_dir / "life").exists, "the owner's block runs")
        finally:
            owner.send_signal(signal.SIGKILL)
            await owner.wait()
        await wait_until(
            lambda: not list((folder / "tmp").iterdir()),
            f"temporary files are removed: {list((folder / 'tmp').iterdir())}",
        )
        await wait_until_dead(work_dir / "life")


def _environment(folder: object) -> dict[str, str]:
    import os
    import sys

    return {
        **os.environ,
        "TMPDIR": f"{folder}/tmp",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }


_OWNER_BLOCK = "import os; os.setsid() if os.fork() == 0 else None" + heartbeat("life")
_OWNER = f"""
import ast, asyncio, sys
from cellblock import CodeBlock
from cellblock.testing.target import ConformanceTarget
factory, options, work_dir = sys.argv[1:]
target = ConformanceTarget(factory, ast.literal_eval(options))
executor = target.create(work_dir=work_dir, timeout=600)
block = CodeBlock({_OWNER_BLOCK!r}, "python")
asyncio.run(executor.execute_code_blocks([block]))
"""
