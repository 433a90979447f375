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
from pathlib import Path

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


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_every_public_name_of_the_executor_is_there_without_await(
    face: type[sync.SyncCodeExecutor],
) -> None:
    kind = getattr(cellblock, face.__name__)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using LocalCommandLineCodeExecutor")
        made = face(*NEEDED.get(face.__name__, ()))
    for name in public(kind):
        assert hasattr(made, name), name
        original = inspect.getattr_static(kind, name)
        if inspect.iscoroutinefunction(original) or name == "execute_stream":
            assert not inspect.iscoroutinefunction(getattr(made, name)), name
            assert any(name in vars(base) for base in face.__mro__), (
                f"{name} would return a coroutine"
            )


def test_every_public_executor_has_a_synchronous_class() -> None:
    def executors(kind: type[CodeExecutor]) -> Iterator[str]:
        for inner in kind.__subclasses__():
            yield inner.__name__
            yield from executors(inner)

    public_executors = {name for name in executors(CodeExecutor) if name in cellblock.__all__}
    assert public_executors <= set(sync.__all__)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("SandboxCommandLineCodeExecutor", "containers executors.jupyter executors.session"),
        ("SandboxSessionCodeExecutor", "containers executors.jupyter executors.remote"),
        ("JupyterCodeExecutor", "containers executors.session executors.remote"),
    ],
)
def test_only_the_family_of_a_class_is_imported(name: str, others: str) -> None:
    program = f"import sys\nfrom cellblock.sync import {name}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, check=True
    )
    loaded = done.stdout.split()
    assert "cellblock.executors.base" in loaded
    assert [other for other in others.split() if f"cellblock.{other}" in loaded] == []


def test_all_classes_are_shown_before_they_are_imported() -> None:
    program = "from cellblock import sync\nprint(*dir(sync))"
    done = subprocess.run(
        [sys.executable, "-c", program], text=True, capture_output=True, check=True
    )
    assert done.stdout.split() == sync.__all__


SHARED = sorted(public(CodeExecutor) & set(vars(sync.SyncCodeExecutor)))


@pytest.mark.parametrize("name", SHARED)
def test_methods_take_the_same_parameters(name: str) -> None:
    ours, theirs = (getattr(kind, name) for kind in (sync.SyncCodeExecutor, CodeExecutor))
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


@pytest.mark.parametrize("name", sorted({*sync.__all__} - {"run_many"}))
def test_help_shows_the_parameters_of_a_synchronous_class(name: str) -> None:
    shown, wrapped = (inspect.signature(getattr(module, name)) for module in (sync, cellblock))
    assert list(shown.parameters.values()) == list(wrapped.parameters.values())


def test_help_shows_the_parameters_of_a_session_of_a_server() -> None:
    shown = inspect.signature(sync.SandboxSessionServer.session)
    assert "work_dir" in shown.parameters


def test_result_is_the_asynchronous_executors_result(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    result = executor.execute_code_blocks(code_blocks=HI)
    assert isinstance(result, CommandLineCodeResult)
    assert (result.exit_code, result.output) == (0, "hi\n")


def test_stream_yields_the_events_of_the_result(executor: SandboxCommandLineCodeExecutor) -> None:
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


def test_it_works_inside_a_running_event_loop(executor: SandboxCommandLineCodeExecutor) -> None:
    async def main() -> str:
        return executor.execute_code_blocks(HI).output

    assert asyncio.run(main()) == "hi\n"


def test_each_of_many_threads_gets_its_own_result(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    results: dict[int, str] = {}

    def run(number: int) -> None:
        results[number] = executor.execute_code_blocks(
            [CodeBlock(f"print({number})", "python")]
        ).output

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f"{number}\n" for number in range(16)}


def test_a_token_cancelled_in_another_thread_cancels_the_block(
    executor: SandboxCommandLineCodeExecutor,
) -> None:
    token = CancellationToken()
    blocks = [CodeBlock("import os, time\nos.write(1, b'begun\\n')\ntime.sleep(60)", "python")]
    events = executor.execute_stream(blocks, token)
    found = [next(events), next(events)]
    threading.Thread(target=token.cancel).start()
    result = fold([*found, *events])
    assert (result.exit_code, result.output) == (
        125,
        "begun\n\nCancelled: Code execution was cancelled.",
    )


def test_errors_propagate(executor: SandboxCommandLineCodeExecutor) -> None:
    with pytest.raises(ValueError, match="no code blocks"):
        executor.execute_code_blocks([])
    with pytest.raises(ValueError, match="Timeout must be"):
        SandboxCommandLineCodeExecutor(timeout=0)
    with pytest.raises(AttributeError):
        _ = executor.nothing_of_that_name


def test_stop_is_idempotent_and_the_executor_can_be_used_again(tmp_path: Path) -> None:
    executor = SandboxCommandLineCodeExecutor(work_dir=tmp_path)
    executor.start()
    executor.start()
    executor.restart()
    executor.stop()
    executor.stop()
    assert executor.execute_code_blocks(HI).output == "hi\n"
    executor.stop()


def test_a_loaded_configuration_is_a_synchronous_executor(tmp_path: Path) -> None:
    saved = SandboxCommandLineCodeExecutor(work_dir=tmp_path, timeout=7).dump_component().to_json()
    with SandboxCommandLineCodeExecutor.load_component(saved) as loaded:
        assert (loaded.timeout, loaded.execute_code_blocks(HI).output) == (7, "hi\n")


def test_sessions_of_a_server_share_no_variables() -> None:
    code = [CodeBlock("x = 1 if 'x' not in globals() else 2\nprint(x)", "python")]
    with sync.SandboxSessionServer(preload=["json"]) as server:
        with sync.SandboxSessionCodeExecutor(server=server) as first, server.session() as second:
            outputs = [session.execute_code_blocks(code).output for session in (first, second)]
            (branch,) = second.fork()
            with branch:
                outputs.append(branch.execute_code_blocks(code).output)
    assert outputs == ["1\n", "1\n", "2\n"]


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


@pytest.mark.parametrize("call", ["execute", "stream"])
def test_an_interrupt_kills_the_block_and_propagates(tmp_path: Path, call: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), call]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        while not (tmp_path / "begun").exists():
            threading.Event().wait(0.01)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert output.startswith("interrupted begun\n")
    assert process.returncode == 0


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
    "hashlib.pbkdf2_hmac('sha256', b'', b'', 2_000_000)"
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
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", STOPPED, str(tmp_path), code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for _ in range(count):
            while not (tmp_path / "begun").exists():
                threading.Event().wait(0.01)
            (tmp_path / "begun").unlink()
            process.send_signal(signal.SIGINT)
        output, _ = process.communicate()
    assert (output, process.returncode) == (left, 0)


def test_sessions_can_be_checkpointed_forked_and_restored() -> None:
    with sync.SandboxSessionServer() as server, server.session() as session:
        session.execute_code_blocks([CodeBlock("x = 1", "python")])
        checkpoint = session.checkpoint()
        session.set("x", 2)
        (branch,) = session.fork()
        try:
            assert branch.execute_code_blocks([CodeBlock("print(x)", "python")]).output == "2\n"
        finally:
            branch.stop()
        session.restore(checkpoint)
        assert session.get("x") == 1
        assert [variable.name for variable in session.variables()] == ["x"]
