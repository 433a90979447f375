"""The synchronous interface: every executor method, from plain code, threads and running loops."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cellblock
from cellblock import (
    CancellationToken,
    CodeBlock,
    CodeExecutor,
    CommandLineCodeResult,
    Ended,
    Output,
    fold,
    sync,
)
from cellblock.sync import SandboxCommandLineCodeExecutor
from cellblock.testing.liveness import assert_dead, heartbeat
from tests.suite.tiers import exhaustive

HI = [CodeBlock("print('hi')", "python")]
FACES = [
    face
    for face in (getattr(sync, name) for name in sync.__all__)
    if isinstance(face, type) and issubclass(face, sync.SyncCodeExecutor)
]
_SERVER = cellblock.JupyterConnectionInfo("127.0.0.1", False)
NEEDED = {
    "AzureContainerCodeExecutor": ("https://pool.example",),
    "JupyterServerCodeExecutor": (_SERVER,),
    "DockerJupyterCodeExecutor": (_SERVER,),
}
ASYNC_ONLY = {"__aenter__", "__aexit__"}


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxCommandLineCodeExecutor]:
    with SandboxCommandLineCodeExecutor(work_dir=tmp_path_factory.mktemp("work")) as executor:
        yield executor


def public(kind: type[object]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_public_name_of_an_executor_is_there_without_await() -> None:
    def executors(kind: type[CodeExecutor]) -> Iterator[str]:
        for inner in kind.__subclasses__():
            yield inner.__name__
            yield from executors(inner)

    public_executors = {name for name in executors(CodeExecutor) if name in cellblock.__all__}
    assert public_executors <= set(sync.__all__)
    faults = [f"{face.__name__}.{name}" for face in FACES for name in names_with_await(face)]
    assert faults == []


def names_with_await(face: type[sync.SyncCodeExecutor]) -> Iterator[str]:
    """Yield which names of the asynchronous class are missing, or would return a coroutine."""
    kind = getattr(cellblock, face.__name__)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using LocalCommandLineCodeExecutor")
        made = face(*NEEDED.get(face.__name__, ()))
    for name in public(kind):
        original = inspect.getattr_static(kind, name)
        is_async = inspect.iscoroutinefunction(original) or name == "execute_stream"
        is_ours = any(name in vars(base) for base in face.__mro__)
        found = getattr(made, name, None)
        if (
            not hasattr(made, name)
            or is_async
            and (inspect.iscoroutinefunction(found) or not is_ours)
        ):
            yield name


@pytest.mark.parametrize(
    ("name", "others"),
    exhaustive(
        [
            ("SandboxCommandLineCodeExecutor", "containers executors.jupyter executors.session"),
            ("SandboxSessionCodeExecutor", "containers executors.jupyter executors.remote"),
            ("JupyterCodeExecutor", "containers executors.session executors.remote"),
        ]
    ),
)
def test_only_the_family_of_a_class_is_imported(name: str, others: str) -> None:
    program = "import sys\nfrom cellblock import sync\nprint(*dir(sync))\n"
    program += f"from cellblock.sync import {name}\nprint(*sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, text=True, capture_output=True, check=True)
    shown, loaded = (line.split() for line in done.stdout.splitlines())
    assert shown == sync.__all__  # before they are imported
    assert "cellblock.executors.base" in loaded
    assert [other for other in others.split() if f"cellblock.{other}" in loaded] == []


def test_help_shows_the_parameters_of_synchronous_classes_and_methods() -> None:
    def parameters(of: Any) -> list[inspect.Parameter]:
        return list(inspect.signature(of).parameters.values())

    classes = sorted({*sync.__all__} - {"run_many"})
    pairs = [(getattr(sync, name), getattr(cellblock, name)) for name in classes]
    assert [ours for ours, theirs in pairs if parameters(ours) != parameters(theirs)] == []
    methods = public(CodeExecutor) & set(vars(sync.SyncCodeExecutor))
    names = {
        name: [
            [parameter.name for parameter in parameters(getattr(kind, name))]
            for kind in (sync.SyncCodeExecutor, CodeExecutor)
        ]
        for name in methods
    }
    assert [name for name, (ours, theirs) in names.items() if ours != theirs] == []
    assert "work_dir" in inspect.signature(sync.SandboxSessionServer.session).parameters


def test_results_and_events_are_those_of_the_asynchronous_executor(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    async def main() -> CommandLineCodeResult:
        return executor.execute_code_blocks(code_blocks=HI)

    for result in (executor.execute_code_blocks(HI), asyncio.run(main())):
        assert isinstance(result, CommandLineCodeResult)
        assert (result.exit_code, result.output) == (0, "hi\n")
    events = list(executor.execute_stream(HI))
    assert fold(events).output == "hi\n"
    assert isinstance(events[-1], Ended)


def test_closing_the_stream_early_kills_the_block(executor: SandboxCommandLineCodeExecutor) -> None:
    code = f"print(1, flush=True)\n{heartbeat('life')}"
    for event in executor.execute_stream([CodeBlock(code, "python")]):
        if isinstance(event, Output):
            break
    life = Path(executor.work_dir, "life")
    life.touch()
    asyncio.run(assert_dead(life))


def test_each_of_many_threads_gets_its_own_result(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    def run(number: int) -> str:
        block = CodeBlock(f"print({number})", "python")
        return executor.execute_code_blocks([block]).output

    with ThreadPoolExecutor(16) as threads:
        outputs = list(threads.map(run, range(16)))
    assert outputs == [f"{number}\n" for number in range(16)]


def test_a_token_cancelled_in_another_thread_cancels_the_block(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    token = CancellationToken()
    blocks = [CodeBlock("import os, time\nos.write(1, b'begun\\n')\ntime.sleep(60)", "python")]
    events = executor.execute_stream(blocks, token)
    found = [next(events), next(events)]
    threading.Thread(target=token.cancel).start()
    result = fold([*found, *events])
    output = "begun\n\nCancelled: Code execution was cancelled."
    assert (result.exit_code, result.output) == (125, output)


def test_errors_propagate(executor: SandboxCommandLineCodeExecutor) -> None:
    with pytest.raises(ValueError, match="no code blocks"):
        executor.execute_code_blocks([])
    with pytest.raises(ValueError, match="Timeout must be"):
        SandboxCommandLineCodeExecutor(timeout=0)
    with pytest.raises(AttributeError):
        _ = executor.nothing_of_that_name


def test_a_loaded_executor_can_be_stopped_often_and_used_again(tmp_path: Path) -> None:
    saved = SandboxCommandLineCodeExecutor(work_dir=tmp_path, timeout=7).dump_component().to_json()
    executor = SandboxCommandLineCodeExecutor.load_component(saved)
    executor.start()
    executor.start()
    executor.restart()
    executor.stop()
    executor.stop()
    assert (executor.timeout, executor.execute_code_blocks(HI).output) == (7, "hi\n")
    executor.stop()


def test_sessions_of_a_server_are_forked_and_restored_and_share_no_variables() -> None:
    code = [CodeBlock("x = 1 if 'x' not in globals() else 2\nprint(x)", "python")]
    with sync.SandboxSessionServer(preload=["json"]) as server:
        with sync.SandboxSessionCodeExecutor(server=server) as first, server.session() as second:
            outputs = [session.execute_code_blocks(code).output for session in (first, second)]
            checkpoint = second.checkpoint()
            (branch,) = second.fork()
            with branch:
                outputs.append(branch.execute_code_blocks(code).output)
            assert outputs == ["1\n", "1\n", "2\n"]
            second.set("x", 3)
            second.restore(checkpoint)
            assert second.get("x") == 1
            assert [variable.name for variable in second.variables()] == ["x"]


INTERRUPTED = """
import asyncio, pathlib, sys
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor
from cellblock.testing.liveness import assert_dead, heartbeat

block = CodeBlock(heartbeat("begun"), "python")
with SandboxCommandLineCodeExecutor(work_dir=sys.argv[1]) as executor:
    executor.start()
    try:
        if sys.argv[2] == "stream":
            list(executor.execute_stream([block]))
        else:
            executor.execute_code_blocks([block])
    except KeyboardInterrupt:
        print("interrupted", executor.execute_code_blocks([CodeBlock("ls", "sh")]).output)
        asyncio.run(assert_dead(pathlib.Path(sys.argv[1], "begun")))
"""


@pytest.mark.parametrize("call", exhaustive(["execute", "stream"]))
def test_an_interrupt_kills_the_block_and_propagates(tmp_path: Path, call: str) -> None:
    output, exit_code = interrupted(tmp_path, [INTERRUPTED, str(tmp_path), call])
    assert output.startswith("interrupted begun\n")
    assert exit_code == 0


def interrupted(folder: Path, arguments: list[str], count: int = 1) -> tuple[str, int]:
    """Interrupt a program each time it has written `begun`. Return its output and exit code."""
    begun, environment = folder / "begun", {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command, pipe = [sys.executable, "-c", *arguments], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, text=True, env=environment) as process:
        for number in range(count):
            while not begun.exists():
                threading.Event().wait(0.01)
            if number < count - 1:
                begun.unlink()
            process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    return output, process.returncode


INTERRUPTED_OFTEN = """
import os, signal, sys, threading, time
from cellblock import CodeBlock
from cellblock.sync import SandboxCommandLineCodeExecutor

def interrupt(after):
    time.sleep(after)
    os.kill(os.getpid(), signal.SIGINT)

count = 0
with SandboxCommandLineCodeExecutor(work_dir=sys.argv[1]) as executor:
    for number in range(40):
        interrupting = threading.Thread(target=interrupt, args=(number * 1e-4,))
        try:
            interrupting.start()
            block = CodeBlock(f"print({number})", "python")
            assert executor.execute_code_blocks([block]).output == f"{number}\\n"
            interrupting.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            count += 1
            interrupting.join()
    print(count, os.listdir(sys.argv[1]))
"""


def test_an_interrupt_at_any_moment_of_a_block_propagates_once(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", INTERRUPTED_OFTEN, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "40 []\n", "")


STOPPED = """
import sys, time
from cellblock import CodeBlock
from cellblock.sync import SandboxSessionCodeExecutor

def run(code):
    return session.execute_code_blocks([CodeBlock(code, "python")]).output

with SandboxSessionCodeExecutor(work_dir=sys.argv[1], timeout=None) as session:
    run("outer = 1")
    try:
        run(sys.argv[2])
    except KeyboardInterrupt:
        print(run("print(outer, globals().get('inner'))"))
"""
NATIVE = (
    "import hashlib\ninner = 2\nopen('begun', 'w').close()\n"
    "hashlib.pbkdf2_hmac('sha256', b'', b'', 500_000)"
)
STUBBORN = (
    "import time\ninner = 2\nwhile True:\n    try: open('begun', 'w').close(); time.sleep(600)\n"
    "    except KeyboardInterrupt: pass"
)


@pytest.mark.parametrize(
    ("code", "count", "left"), [(NATIVE, 1, "1 2\n\n"), (STUBBORN, 2, "1 None\n\n")]
)
def test_one_interrupt_keeps_the_variables_of_a_session_and_two_kill_the_block(
    tmp_path: Path, code: str, count: int, left: str
) -> None:
    assert interrupted(tmp_path, [STOPPED, str(tmp_path), code], count) == (left, 0)
