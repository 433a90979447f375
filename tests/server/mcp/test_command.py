"""The process `cellblock mcp`: its options, its start and its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError

from tests.cli.cli_process import run_command
from tests.server.mcp.mcp_client import (
    COMMAND,
    STDIO,
    call_refused,
    connect,
    run_async,
    run_code,
    serve_http,
    start_raw,
)

HELLO: dict[str, Any] = {
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
# It writes a file and then never ends.
RUN: dict[str, Any] = {
    "method": "tools/call",
    "params": {
        "name": "run_code",
        "arguments": {"code": "print('up', flush=True)\nwhile True: pass"},
        "_meta": {"progressToken": "p"},
    },
}


async def _send(process: asyncio.subprocess.Process, number: int, request: dict[str, Any]) -> None:
    assert process.stdin is not None
    line = json.dumps({"jsonrpc": "2.0", "id": number, **request})
    process.stdin.write(f"{line}\n".encode())
    await process.stdin.drain()


async def _read_until(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if text in line:
            return
    raise AssertionError(f"No line with {text}")


async def _start_endless_run(process: asyncio.subprocess.Process) -> None:
    await _send(process, 1, HELLO)
    await _read_until(process, "serverInfo")
    assert process.stdin is not None
    process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
    await _send(process, 2, RUN)
    await _read_until(process, "up")


def test_sigterm_ends_running_code_and_leaves_nothing(tmp_path: Path) -> None:
    async def check() -> None:
        async with start_raw(tmp_path) as process:
            await _start_endless_run(process)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 128 + signal.SIGTERM
        assert list(tmp_path.glob("cellblock-*")) == []

    run_async(check())


def test_a_client_that_closes_the_connection_ends_everything(tmp_path: Path) -> None:
    async def check() -> None:
        async with start_raw(tmp_path) as process:
            await _start_endless_run(process)
            assert process.stdin is not None
            process.stdin.close()
            assert await process.wait() == 0
        assert list(tmp_path.glob("cellblock-*")) == []

    run_async(check())


def test_code_reads_and_changes_only_the_folders_that_the_user_named(tmp_path: Path) -> None:
    async def check() -> None:
        for name in ("data", "out", "secret"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "f").write_text(name)
        options = ("--read", str(tmp_path / "data"), "--write", str(tmp_path / "out"))
        async with connect(STDIO, *options) as client:
            assert str(tmp_path / "data") in (client.instructions or "")
            code = f"top = {str(tmp_path)!r}; print(open(f'{{top}}/data/f').read())"
            assert (await run_code(client, code))["stdout"] == "data\n"
            assert (await run_code(client, "open(f'{top}/data/f', 'w')"))["exit_code"] == 1
            assert (await run_code(client, "open(f'{top}/secret/f')"))["exit_code"] == 1
            await run_code(client, "_ = open(f'{top}/out/f', 'w').write('changed')")
            assert (tmp_path / "out" / "f").read_text() == "changed"

    run_async(check())


def test_limits_apply_to_sessions() -> None:
    async def check() -> None:
        async with connect(STDIO, "--memory", "200M", "--timeout", "1") as client:
            assert (await run_code(client, "b'x' * (1 << 30)"))["exit_code"] != 0
            assert (await run_code(client, "while True: pass"))["outcome"] == "timeout"

    run_async(check())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--read", "/no/such/folder"), "is not a folder"),
        (("--write", "~"), "home folder"),
        (("--read", "/"), "home folder"),
        (("--image", "x"), "--image applies only"),
        (("--http", "abc"), "'abc' is not a valid port number"),
        (("--executor", "docker", "--read", "/etc"), "apply only to --executor sandbox"),
    ],
)
def test_wrong_options_are_refused(options: tuple[str, ...], message: str) -> None:
    done = run_command("mcp", *options)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("option", ["--preload", "--package"])
def test_tools_answer_with_the_reason_if_the_sandbox_cannot_start(option: str) -> None:
    async def check() -> None:
        name = "no_such_module_here" if option == "--preload" else "./no-such-folder-here"
        async with connect(STDIO, option, name) as client:
            for _ in range(2):
                assert name.strip("./") in await call_refused(client, "run_code", code="1")
            assert name.strip("./") in await call_refused(client, "reset_session")
            with pytest.raises(MCPError, match=name.strip("./")):
                await client.list_resources()
            assert len((await client.list_tools()).tools) > 5

    run_async(check())


def test_a_sandbox_that_cannot_start_gives_the_exit_code_of_the_command(tmp_path: Path) -> None:
    async def check() -> None:
        async with start_raw(tmp_path, "--preload", "no_such_module_here") as process:
            await _send(process, 1, HELLO)
            await _read_until(process, "serverInfo")
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
            await _send(process, 2, RUN)
            await _read_until(process, "no_such_module_here")
            process.stdin.close()
            assert "no_such_module_here" in (await process.stderr.read()).decode()
            assert await process.wait() == 3

    run_async(check())


@pytest.mark.parametrize("has_content", [False, True])
def test_input_that_is_no_pipe_is_read_to_its_end(has_content: bool, tmp_path: Path) -> None:
    path = Path("/dev/null")
    if has_content:
        path = tmp_path / "requests"
        path.write_text(json.dumps({"jsonrpc": "2.0", "id": 1, **HELLO}) + "\n")
    with path.open("rb") as file:
        done = subprocess.run(
            (sys.executable, *COMMAND), stdin=file, capture_output=True, text=True
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert has_content == ("serverInfo" in done.stdout)


def test_in_a_terminal_one_line_says_what_starts_the_command() -> None:
    controller, terminal = os.openpty()
    try:
        with subprocess.Popen(
            (sys.executable, *COMMAND), stdin=terminal, stderr=subprocess.PIPE
        ) as process:
            assert process.stderr is not None
            assert b"docs/mcp.md" in process.stderr.readline()
            process.terminate()
            assert process.stderr.read() == b""
    finally:
        os.close(controller)
        os.close(terminal)


def test_sigterm_ends_the_http_server_and_leaves_nothing(tmp_path: Path) -> None:
    async def check() -> None:
        async with start_raw(tmp_path, "--http", "0") as process:
            assert process.stderr is not None
            await process.stderr.readline()  # it starts
            url = (await process.stderr.readline()).decode().split()[-1]
            async with Client(url) as client:
                await run_code(client, "x = 1")
                process.send_signal(signal.SIGTERM)
                assert await process.wait() == 128 + signal.SIGTERM
        assert list(tmp_path.glob("cellblock-*")) == []

    run_async(check())


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    async def check() -> None:
        async with serve_http() as url:
            port = url.removesuffix("/mcp").rpartition(":")[2]
            async with start_raw(tmp_path, "--http", port) as process:
                assert process.stderr is not None
                assert f"port {port}" in (await process.stderr.read()).decode()
                assert await process.wait() == 3

    run_async(check())


def test_a_web_page_cannot_reach_the_server_through_a_foreign_name() -> None:
    async def check() -> None:
        async with serve_http() as url, httpx.AsyncClient() as http:
            for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                answer = await http.post(
                    url,
                    json={"jsonrpc": "2.0", "id": 1, **HELLO},
                    headers={"Accept": "application/json, text/event-stream", **headers},
                )
                assert answer.status_code in (403, 421)

    run_async(check())
