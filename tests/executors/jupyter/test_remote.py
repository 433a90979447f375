"""Kernels on real Jupyter servers: a local one, a kernel gateway, and servers that fail."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellblock import (
    BackendError,
    CancellationToken,
    CodeBlock,
    ComponentError,
    FunctionError,
    JupyterConnectable,
    JupyterConnectionInfo,
    JupyterServerCodeExecutor,
    Limits,
    LocalJupyterServer,
    sync,
    with_requirements,
)
from cellblock.aio.background_loop import background_loop
from cellblock.events import Event, Output
from cellblock.executors.jupyter.remote_kernel import RemoteKernel
from cellblock.results import fold
from cellblock.testing.liveness import assert_dead, heartbeat, wait_until, wait_until_dead
from tests.executors.blocks import area
from tests.executors.jupyter.kernels import run, run_and_end
from tests.executors.jupyter.server_inspection import kernels_status
from tests.executors.programs import start_python

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("kernel_specs")]


@pytest.fixture(scope="module")
def python(server: LocalJupyterServer) -> Iterator[sync.JupyterServerCodeExecutor]:
    with sync.JupyterServerCodeExecutor(server, timeout=2) as executor:
        yield executor


def kernel_of(executor: Any) -> RemoteKernel:
    kernel = executor._executor._kernel
    assert isinstance(kernel, RemoteKernel)
    return kernel


def drop_socket(executor: Any) -> None:
    """Cut the connection to the kernel."""

    async def drop() -> None:
        inner: Any = kernel_of(executor)._socket
        inner._response.connection.transport.abort()

    background_loop().run(drop())


# the executor


def test_images_are_saved_on_the_callers_machine(python: sync.JupyterServerCodeExecutor) -> None:
    result = run(
        python, "from IPython.display import display\ndisplay({'image/png': 'aGVsbG8='}, raw=True)"
    )
    (path,) = result.output_files
    assert path.parent == python.output_dir
    assert path.read_bytes() == b"hello"


def test_code_that_ignores_interrupts_is_killed_with_its_kernel(
    python: sync.JupyterServerCodeExecutor, work: Path
) -> None:
    code = (
        "import time\nwhile True:\n"
        "  try:\n    open('stubborn', 'a').write('x'); time.sleep(0.02)\n"
        "  except BaseException: pass"
    )
    result = run(python, code)
    assert (result.exit_code, result.outcome) == (124, "timeout")
    assert "variables are gone" in result.notice
    asyncio.run(wait_until_dead(work / "stubborn"))
    assert run(python, "1").output == "1\n"


@pytest.mark.slow
def test_a_timeout_and_a_cancelled_token_keep_output_and_variables(
    python: sync.JupyterServerCodeExecutor, work: Path
) -> None:
    assert run(python, "kept = 1\nimport os\nprint(os.getcwd())").output == f"{work}\n"
    code = "print('so far', end='', flush=True)\nwhile True: pass"
    result = run(python, code)
    assert (result.exit_code, result.outcome, result.output) == (124, "timeout", "so far\nTimeout")
    token, events = CancellationToken(), list[Event]()
    for event in python.execute_stream([CodeBlock(code, "python")], token):
        events.append(event)
        if isinstance(event, Output):
            token.cancel()
    result = fold(events)
    assert result.exit_code == 125
    assert result.output == "so far\nCancelled: Code execution was cancelled."
    assert run(python, "kept").output == "1\n"


async def test_cancelling_the_task_stops_the_code(server: LocalJupyterServer, work: Path) -> None:
    async with JupyterServerCodeExecutor(server) as executor:
        running = asyncio.ensure_future(
            executor.execute_code_blocks([CodeBlock(heartbeat("task"), "python")])
        )
        await wait_until((work / "task").exists, "the block runs")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await assert_dead(work / "task")


@pytest.mark.slow
def test_a_dead_kernel_is_reported_and_replaced(server: LocalJupyterServer, work: Path) -> None:
    with sync.JupyterServerCodeExecutor(server) as executor:
        result = run_and_end(executor, "os._exit(9)", work)
        assert (result.exit_code, result.outcome) == (137, "killed")
        assert (
            result.output
            == "x\n\nKilled: the kernel died.\nThe kernel was restarted: its variables are gone."
        )
        assert run(executor, "1").output == "1\n"


def test_a_lost_connection_is_restored(python: sync.JupyterServerCodeExecutor) -> None:
    run(python, "kept = 1")
    before = kernel_of(python)
    drop_socket(python)
    assert run(python, "kept").output == "1\n"
    assert kernel_of(python) is before


def test_no_output_is_lost_when_the_connection_is_lost_during_a_block(
    python: sync.JupyterServerCodeExecutor,
) -> None:
    seen = ""
    code = (
        "import time\nfor number in range(15):\n    print(number, flush=True)\n    time.sleep(0.1)"
    )
    for event in python.execute_stream([CodeBlock(code, "python")]):
        text = getattr(event, "text", "")
        if text and not seen:
            drop_socket(python)
        seen += text
    assert seen == "".join(f"{number}\n" for number in range(15))


def test_shell_blocks_run_as_processes_of_the_kernel(
    python: sync.JupyterServerCodeExecutor,
) -> None:
    result = run(python, "echo '{x}'\necho error >&2\nread line || exit 3", "sh")
    assert (result.exit_code, sorted(result.output.split())) == (3, ["error", "{x}"])
    assert run(python, "#!/usr/bin/python3\nprint(6 * 7)", "sh").output == "42\n"
    assert run(python, "#!/bin/bash\r\n[[ a == a ]] && kill -9 $$\r\n", "sh").exit_code == 137


@pytest.mark.slow
def test_a_shell_block_ends_at_the_time_limit(server: LocalJupyterServer) -> None:
    with sync.JupyterServerCodeExecutor(server, timeout=1) as executor:
        result = run(executor, "echo before\nsleep 60", "sh")
        assert (result.exit_code, result.outcome) == (124, "timeout")
        assert "before" in result.output
        assert run(executor, "print(1)", "python").output == "1\n"


def test_blocks_in_other_languages_are_not_run(python: sync.JupyterServerCodeExecutor) -> None:
    assert run(python, "x", "javascript").output == "unknown language javascript"
    assert run(python, "{}", "json").exit_code == 0


@pytest.mark.slow
def test_a_bash_kernel_runs_shell_blocks_only(server: LocalJupyterServer) -> None:
    with sync.JupyterServerCodeExecutor(server, "bash") as executor:
        assert run(executor, "echo $((6 * 7))", "sh").output == "42\n"
        assert run(executor, "print(1)", "python").output == "unknown language python"


@with_requirements(python_packages=["pandas"])
def table() -> None:
    """Need a package."""


def test_functions_can_be_imported_and_the_first_block_is_the_first_entry_of_the_history(
    server: LocalJupyterServer,
) -> None:
    with sync.JupyterServerCodeExecutor(server, functions=[area]) as executor:
        assert run(executor, "print(In)").output == "['', 'print(In)']\n"
        assert "Cell In[2], line 1" in run(executor, "1 / 0").output
        assert run(executor, "from functions import area\narea(2)").output == "13\n"
    with pytest.raises(FunctionError, match="pandas"):
        JupyterServerCodeExecutor(server, functions=[table])


def test_stopping_the_executor_shuts_down_its_kernel_on_the_server(
    server: LocalJupyterServer, work: Path
) -> None:
    with sync.JupyterServerCodeExecutor(server) as executor:
        code = (
            "import threading\nthreading.Thread("
            f"target=exec, args=({heartbeat('thread')!r}, {{}}), daemon=True).start()"
        )
        run(executor, code)
        asyncio.run(wait_until((work / "thread").exists, "the thread runs"))
    asyncio.run(assert_dead(work / "thread"))


def test_invalid_arguments_raise_errors(server: LocalJupyterServer) -> None:
    wrong: Any = "http://127.0.0.1"
    with pytest.raises(
        ValueError, match="jupyter_server must be a JupyterConnectable or JupyterConnectionInfo."
    ):
        JupyterServerCodeExecutor(wrong)
    with pytest.raises(ValueError, match="cannot enforce memory_bytes"):
        JupyterServerCodeExecutor(server, limits=Limits(memory_bytes=1 << 30))
    with pytest.raises(
        BackendError, match=r"'nothing' is not installed on the server .*: bash, broken, python3"
    ):
        sync.JupyterServerCodeExecutor(server, "nothing").start()
    with pytest.raises(ComponentError, match="cannot be saved"):
        JupyterServerCodeExecutor(server).dump_component()


# the token


@pytest.mark.slow
def test_the_token_is_required_and_never_shown(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.DEBUG)
    log, secret, wrong = tmp_path / "log", "s3cret" * 5, "wr0ng" * 5
    with LocalJupyterServer(token=secret, log_file=log, log_level="DEBUG") as server:
        info = server.connection_info
        statuses = [kernels_status(info, token) for token in (secret, None, "wrong")]
        assert statuses == [200, 403, 403]
        with sync.JupyterServerCodeExecutor(server) as executor:
            assert run(executor, "1").output == "1\n"
        with pytest.raises(BackendError, match="Check the token") as refused:
            sync.JupyterServerCodeExecutor(
                JupyterConnectionInfo(info.host, False, info.port, wrong)
            ).start()
        shown = [*map(repr, (info, server, executor)), str(info), info.url]
        shown += [caplog.text, log.read_text()]
        arguments = list[bytes]()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                arguments.append(path.read_bytes())
    assert log.read_text()
    assert [text for text in shown if secret in text] == []
    assert [line for line in arguments if secret.encode() in line] == []
    assert wrong not in "".join(traceback.format_exception(refused.value)) + repr(refused.value)
    assert refused.value.__cause__ is None


def test_connection_info_is_parsed_from_a_url() -> None:
    info = JupyterConnectionInfo.from_url("http://127.0.0.1:8888/?token=abc")
    assert info == JupyterConnectionInfo("127.0.0.1", False, 8888, "abc")
    assert info.url == "http://127.0.0.1:8888"
    info = JupyterConnectionInfo.from_url("https://hub.example/user/me/", "abc")
    assert (info.url, info.token) == ("https://hub.example/user/me", "abc")
    assert (
        JupyterConnectionInfo("hub.example/user/me", True, 444).url
        == "https://hub.example:444/user/me"
    )
    assert JupyterConnectionInfo.from_url("http://[::1]:8888").url == "http://[::1]:8888"
    for wrong in ("ftp://x", "127.0.0.1:8888", "http://"):
        with pytest.raises(ValueError, match="begin with http"):
            JupyterConnectionInfo.from_url(wrong)
    for wrong in ("http://x", "", "me@x", "x?token=1"):
        with pytest.raises(ValueError, match="host"):
            JupyterConnectionInfo(wrong, False)


# servers


def test_an_unreachable_server_raises_a_backend_error() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        info = JupyterConnectionInfo("127.0.0.1", False, probe.getsockname()[1])
        with pytest.raises(BackendError, match="cannot be reached"):
            sync.JupyterServerCodeExecutor(info).start()


@pytest.mark.slow
def test_a_server_that_stops_during_a_block_is_reported() -> None:
    server = LocalJupyterServer()
    with server, sync.JupyterServerCodeExecutor(server, timeout=50) as executor:
        stream = executor.execute_stream(
            [CodeBlock("import time\nprint('x', flush=True)\ntime.sleep(40)", "python")]
        )
        events: list[Any] = []
        for event in stream:
            events.append(event)
            if getattr(event, "text", ""):
                server.stop()
        assert (events[-1].exit_code, events[-1].outcome) == (137, "killed")
        assert "cannot be reached" in events[-1].message


@pytest.mark.slow
def test_the_local_server_starts_on_demand_and_stops_with_its_kernels(tmp_path: Path) -> None:
    server = LocalJupyterServer(work_dir=tmp_path)
    assert isinstance(server, JupyterConnectable)
    info = server.connection_info
    assert info.host == "127.0.0.1"
    assert server.connection_info is info
    with sync.JupyterServerCodeExecutor(server) as executor:
        daemon = (
            "import subprocess, sys\n"
            "subprocess.Popen([sys.executable, '-c', CODE], start_new_session=True)"
        )
        run(executor, daemon.replace("CODE", repr(heartbeat("daemon"))))
        asyncio.run(wait_until((tmp_path / "daemon").exists, "the daemon runs"))
        server.stop()
        server.stop()
        asyncio.run(assert_dead(tmp_path / "daemon"))
    with pytest.raises(urllib.error.URLError):
        kernels_status(info, None)


async def test_a_client_starts_lists_and_deletes_kernels(server: LocalJupyterServer) -> None:
    async with server.get_client() as client:
        assert (await client.list_kernel_specs())["bash"]["spec"]["language"] == "bash"
        kernel = await client.start_kernel("python3")
        await client.interrupt_kernel(kernel)
        await client.restart_kernel(kernel)
        assert kernel in {found["id"] for found in await client.list_kernels()}
        await client.delete_kernel(kernel)
        with pytest.raises(BackendError, match="no such kernel"):
            await client.delete_kernel(kernel)


def test_a_server_stops_when_its_owner_process_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom cellblock import LocalJupyterServer\n"
        "server = LocalJupyterServer()\nprint(server.connection_info.port, flush=True)\n"
        "time.sleep(60)"
    )
    with start_python("-c", code, TMPDIR=str(tmp_path)) as owner:
        assert owner.stdout is not None
        info = JupyterConnectionInfo("127.0.0.1", False, int(owner.stdout.readline()))
        assert kernels_status(info, None) == 403
        owner.kill()

    def gone() -> bool:
        try:
            kernels_status(info, None)
        except OSError:
            return not list(tmp_path.iterdir())
        return False

    asyncio.run(wait_until(gone, "the server and its files are gone"))


@pytest.mark.slow
def test_a_second_server_has_another_port_and_token_or_says_why_it_cannot_start(
    server: LocalJupyterServer,
) -> None:
    with LocalJupyterServer() as other:
        assert other.connection_info.port != server.connection_info.port
        assert kernels_status(other.connection_info, server.connection_info.token) == 403
    with pytest.raises(BackendError, match="already in use|did not start"):
        LocalJupyterServer(port=server.connection_info.port).start()


def test_a_server_open_to_other_users_or_machines_is_refused() -> None:
    with pytest.raises(ValueError, match=r"loopback|127.0.0.1"):
        LocalJupyterServer(ip="0.0.0.0")
    with pytest.raises(ValueError, match="empty"):
        LocalJupyterServer(token="")


@pytest.mark.slow
def test_a_kernel_gateway_works_as_a_server(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [
        sys.executable,
        "-m",
        "kernel_gateway",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--JupyterWebsocketPersonality.list_kernels=True",
    ]
    with open(tmp_path / "log", "wb") as log:
        gateway = subprocess.Popen(
            argv, env={**os.environ, "KG_AUTH_TOKEN": "abc"}, stdout=log, stderr=log
        )
    try:
        info = JupyterConnectionInfo("127.0.0.1", False, port, "abc")
        while True:
            with contextlib.suppress(OSError):
                assert kernels_status(info, "abc") == 200
                break
            assert gateway.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.1)
        with sync.JupyterServerCodeExecutor(info, timeout=2) as executor:
            assert run(executor, "x = 1\nprint('hi')\nx").output == "hi\n1\n"
            assert run(executor, "while True: pass").exit_code == 124
            assert run(executor, "x").output == "1\n"
    finally:
        gateway.terminate()
        gateway.wait()
