"""The process `cellblock mcp`: its options, its start and its end."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client

from tests.cli.cli_process import run_command
from tests.server.mcp.mcp_client import (
    STDIO,
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
        (("--executor", "docker", "--read", "/etc"), "apply only to --executor sandbox"),
    ],
)
def test_wrong_options_are_refused(options: tuple[str, ...], message: str) -> None:
    done = run_command("mcp", *options)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_sandbox_that_cannot_start_ends_the_command_with_the_reason(tmp_path: Path) -> None:
    async def check() -> None:
        async with start_raw(tmp_path, "--preload", "no_such_module_here") as process:
            await _send(process, 1, HELLO)  # standard input stays open
            assert process.stderr is not None
            assert "no_such_module_here" in (await process.stderr.read()).decode()
            assert await process.wait() == 3

    run_async(check())


def test_sigterm_ends_the_http_server_and_leaves_nothing(tmp_path: Path) -> None:
    async def check() -> None:
        async with start_raw(tmp_path, "--http", "0") as process:
            assert process.stderr is not None
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
