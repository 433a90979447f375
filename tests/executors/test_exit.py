"""Leaving late: executors that Python's exit ends, and executors in forked children."""

import subprocess
from pathlib import Path

import pytest

from tests.executors.programs import run_python
from tests.executors.session.live_session import skip_without_sandbox

pytestmark = pytest.mark.depends_on_user

PRELUDE = """
import atexit, os, sys, threading
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor, SandboxSessionServer

hi = [CodeBlock("print('hi')", "python")]
"""

LEAVINGS = {
    "stop in __del__ of a global": """
class Owner:
    def __init__(self):
        self.executor = SandboxCommandLineCodeExecutor()
        self.executor.start()
        print(self.executor.work_dir)
    def __del__(self):
        self.executor.stop()

owner = Owner()
""",
    "an abandoned generator around with": """
def outputs():
    with SandboxCommandLineCodeExecutor() as executor:
        print(executor.work_dir)
        while True:
            yield executor.execute_code_blocks(hi).output

one = outputs()
next(one)
""",
    "an abandoned generator around a session server": """
def outputs():
    with SandboxSessionServer() as server, server.session() as session:
        print(session.work_dir)
        while True:
            yield session.execute_code_blocks(hi).output

one = outputs()
next(one)
""",
    "an abandoned stream": """
executor = SandboxCommandLineCodeExecutor()
print(executor.work_dir)
block = CodeBlock("print(1, flush=True); import time; time.sleep(60)", "python")
stream = executor.execute_stream([block])
next(stream)
""",
    "boxes that nobody closes": """
import asyncio
from cellblock import Sandbox

async def main():
    boxes = [Sandbox() for _ in range(8)]
    await asyncio.gather(*(box.exec("true") for box in boxes))
    print(boxes[0].work_dir)

asyncio.run(main())
""",
    "stop at exit": """
executor = SandboxCommandLineCodeExecutor()
atexit.register(executor.stop)
print(executor.work_dir)
executor.execute_code_blocks(hi)
""",
    "stop in a thread that outlives the main thread": """
def work():
    threading.main_thread().join()
    executor.execute_code_blocks(hi)
    executor.stop()

executor = SandboxCommandLineCodeExecutor()
print(executor.work_dir)
executor.start()
threading.Thread(target=work).start()
""",
}


def run_script(script: str) -> "subprocess.CompletedProcess[str]":
    skip_without_sandbox()
    # Python 3.12 and later warn of a fork in a process that has threads.
    return run_python("-W", "ignore:This process", "-c", PRELUDE + script)


@pytest.mark.parametrize("script", LEAVINGS.values(), ids=list(LEAVINGS))
def test_leaving_late_is_quiet_and_leaves_no_folder(script: str) -> None:
    ended = run_script(script)
    assert (ended.returncode, ended.stderr) == (0, "")
    work_dir = Path(ended.stdout.strip())
    assert work_dir.is_absolute()
    assert not work_dir.exists()


@pytest.mark.parametrize("make", ["SandboxCommandLineCodeExecutor()", "server.session()"])
def test_a_forked_child_leaves_the_parents_executor_alone(make: str) -> None:
    """It exits, stops the executor, drops it, or stops the server."""
    ended = run_script(f"""
ends = ["", "executor.stop()", "del executor", "server.__exit__(None, None, None)"]
with SandboxSessionServer() as server, {make} as executor:
    open(f"{{executor.work_dir}}/kept", "w").close()
    for end in ends:
        child = os.fork()
        if child == 0:
            exec(end)
            sys.exit()
        ls = [CodeBlock("ls /workspace/kept", "sh")]
        output = executor.execute_code_blocks(ls).output
        print([end, os.waitpid(child, 0)[1], output], flush=True)  # else children print it too
""")
    assert (ended.returncode, ended.stderr) == (0, "")
    ends = ["", "executor.stop()", "del executor", "server.__exit__(None, None, None)"]
    expected = [str([end, 0, "/workspace/kept\n"]) for end in ends]
    assert ended.stdout.splitlines() == expected


def test_a_child_that_uses_an_unstarted_executor_keeps_the_parents_files() -> None:
    ended = run_script("""
executor = SandboxCommandLineCodeExecutor()
open(f"{executor.work_dir}/kept", "w").close()
child = os.fork()
if child == 0:
    with executor:
        print(executor.execute_code_blocks([CodeBlock("ls kept", "sh")]).output, end="")
    sys.exit()
print(os.waitpid(child, 0)[1], os.listdir(executor.work_dir))
""")
    assert (ended.stdout, ended.stderr) == ("kept\n0 ['kept']\n", "")


def test_restart_in_a_forked_child_says_what_to_do() -> None:
    ended = run_script("""
with SandboxCommandLineCodeExecutor() as executor:
    if os.fork() == 0:
        executor.restart()
    os.wait()
""")
    assert "Create one in this process" in ended.stderr.splitlines()[-1]
    assert ended.returncode == 0


@pytest.mark.slow
def test_a_box_in_a_forked_child_says_once_what_to_do() -> None:
    ended = run_script("""
from cellblock.sync import Sandbox

with Sandbox() as box:
    box.exec("true")
    if os.fork() == 0:
        box.exec("true")
    os.wait()
""")
    assert ended.stderr.splitlines()[-1] == (
        "cellblock.errors.BoxGone: The box is gone: This executor was started in another process. "
        "Create a new one."
    )
    assert ended.returncode == 0


WITHOUT_STOP = """
import asyncio, gc, os, signal, time, warnings
from cellblock import SandboxCommandLineCodeExecutor as Executor

warnings.simplefilter("always", ResourceWarning)

async def run():
    executor = Executor()
    for _ in range(2):
        await executor.execute_code_blocks(hi)
    return executor.place.connection.pid

def use():
    SandboxCommandLineCodeExecutor().execute_code_blocks(hi)

def count():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))

asyncio.run(run())
first = count()
for _ in range(10):
    server = asyncio.run(run())
while count() > first + 5 or os.path.exists(f"/proc/{server}"):
    time.sleep(0.01)  # each loop closes its own descriptor when it has time
print(os.path.exists(f"/proc/{server}"))
use()
lost = Executor()
asyncio.run(lost.execute_code_blocks(hi))
killed = lost.place.connection.pid
os.kill(killed, signal.SIGKILL)
del lost
while count() > first + 5 or os.path.exists(f"/proc/{killed}"):
    time.sleep(0.01)
print(count() <= first + 5)
"""


@pytest.mark.slow
def test_executors_that_nobody_stops_leave_no_server_and_no_descriptor() -> None:
    done = run_script(WITHOUT_STOP)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["False", "True"], "")


def test_a_server_of_an_executor_that_nobody_stops_ends_quietly() -> None:
    done = run_script("""
import asyncio, gc, os, time, warnings
from cellblock import LocalCommandLineCodeExecutor as Executor

warnings.simplefilter("ignore", UserWarning)
warnings.simplefilter("always", ResourceWarning)
lost = Executor()
asyncio.run(lost.execute_code_blocks(hi))
server = lost.place.connection.pid
del lost
gc.collect()
while os.path.exists(f"/proc/{server}"):
    time.sleep(0.01)
""")
    assert (done.returncode, done.stderr) == (0, "")
