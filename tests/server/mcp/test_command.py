"""The process `cellblock mcp`: its options, its start and its end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.cli_process import run_command
from tests.command_server import CommandProcess
from tests.server.mcp.mcp_client import ACCEPT, HELLO, STDIO, serving_http, tools_of, using

_INITIALIZED: dict[str, Any] = {"method": "notifications/initialized"}
# It writes a file and then never ends.
_RUN: dict[str, Any] = {
    "id": 2,
    "method": "tools/call",
    "params": {
        "name": "run_code",
        "arguments": {"code": "print('up', flush=True)\nwhile True: pass"},
        "_meta": {"progressToken": "p"},
    },
}


class _Command:
    """The command with pipes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr

    def request_a_run(self, answer: str) -> None:
        """Request a run that never ends, and read until a line with `answer`."""
        for message in (HELLO, _INITIALIZED, _RUN):
            self.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            self.stdin.flush()
        assert any(answer in line for line in self.stdout)


@contextlib.contextmanager
def _started(folder: Path, *options: str) -> Generator[_Command]:
    """Start the command. Its temporary files are in `folder`, which is empty at its end."""
    pipe, environment = subprocess.PIPE, {**os.environ, "TMPDIR": str(folder)}
    arguments = ["mcp", *options]
    with CommandProcess[str](
        arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, text=True
    ) as process:
        try:
            yield _Command(process)
        finally:
            process.kill()
    assert list(folder.glob("cellblock-*")) == []


def test_sigterm_ends_running_code_and_leaves_nothing(tmp_path: Path) -> None:
    with _started(tmp_path) as command:
        command.request_a_run("up")
        command.process.send_signal(signal.SIGTERM)
        assert command.process.wait() == 128 + signal.SIGTERM


def test_a_client_that_closes_the_connection_ends_everything(tmp_path: Path) -> None:
    with _started(tmp_path) as command:
        command.request_a_run("up")
        command.stdin.close()
        assert command.process.wait() == 0


def test_a_sandbox_that_cannot_start_gives_the_exit_code_of_the_command(tmp_path: Path) -> None:
    with _started(tmp_path, "--preload", "no_such_module_here") as command:
        command.request_a_run("no_such_module_here")
        command.stdin.close()
        assert "no_such_module_here" in command.stderr.read()
        assert command.process.wait() == 3


def test_sigterm_ends_the_http_server_and_leaves_nothing(tmp_path: Path) -> None:
    from mcp import Client

    with _started(tmp_path, "--http", "0") as command:
        assert command.stderr.readline() == "cellblock: starting\n"
        line = command.stderr.readline()
        url = r"http://127\.0\.0\.1:[1-9][0-9]*/mcp"
        assert re.fullmatch(f"cellblock: serving on {url}\n", line)
        with tools_of(Client(line.split()[-1])) as tools:
            tools.run("x = 1")
            command.process.send_signal(signal.SIGTERM)
            assert command.process.wait() == 128 + signal.SIGTERM


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with serving_http() as url:
        port = url.removesuffix("/mcp").rpartition(":")[2]
        with _started(tmp_path, "--http", port) as command:
            assert f"port {port}" in command.stderr.read()
            assert command.process.wait() == 3


def test_a_web_page_cannot_reach_the_server_through_a_foreign_name() -> None:
    with serving_http() as url:
        assert httpx.post(url, json=HELLO, headers=ACCEPT).status_code == 200
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            answer = httpx.post(url, json=HELLO, headers={**ACCEPT, **headers})
            assert answer.status_code in (403, 421)


@pytest.mark.depends_on_user
def test_code_reads_and_changes_only_the_folders_that_the_user_named(tmp_path: Path) -> None:
    for name in ("data", "out", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name)
    options = ("--read", str(tmp_path / "data"), "--write", str(tmp_path / "out"))
    with using(STDIO, *options) as tools:
        assert str(tmp_path / "data") in (tools.client.instructions or "")
        code = f"top = {str(tmp_path)!r}; print(open(f'{{top}}/data/f').read())"
        assert tools.run(code)["stdout"] == "data\n"
        assert tools.run("open(f'{top}/data/f', 'w')")["exit_code"] == 1
        assert tools.run("open(f'{top}/secret/f')")["exit_code"] == 1
        tools.run("_ = open(f'{top}/out/f', 'w').write('changed')")
        assert (tmp_path / "out" / "f").read_text() == "changed"


def test_limits_apply_to_sessions() -> None:
    with using(STDIO, "--memory", "200M", "--timeout", "1") as tools:
        assert tools.run("b'x' * (1 << 30)")["exit_code"] != 0
        assert tools.run("while True: pass")["outcome"] == "timeout"


def test_wrong_options_are_refused() -> None:
    cases = {
        ("--read", "/no/such/folder"): "is not a folder",
        ("--write", "~"): "home folder",
        ("--read", "/"): "home folder",
        ("--image", "x"): "--image applies only",
        ("--http", "abc"): "'abc' is not a valid port number",
        ("--executor", "docker", "--read", "/etc"): "apply only to --executor sandbox",
    }
    done = {options: run_command("mcp", *options) for options in cases}
    faults = [
        (options, done[options])
        for options, message in cases.items()
        if done[options].returncode != 2 or message not in done[options].stderr
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("option", "name"), [("--preload", "no_such_module_here"), ("--package", "./no-such-folder")]
)
def test_tools_answer_with_the_reason_if_the_sandbox_cannot_start(option: str, name: str) -> None:
    from mcp import MCPError

    with using(STDIO, option, name) as tools:
        for tool in ("run_code", "run_code", "reset_session"):
            arguments = {"code": "1"} if tool == "run_code" else {}
            assert name.strip("./") in tools.refusal(tool, **arguments)
        with pytest.raises(MCPError, match=name.strip("./")):
            tools.uris()
        assert len(tools.portal.call(tools.client.list_tools).tools) > 5


@pytest.mark.parametrize("has_content", [False, True])
def test_input_that_is_no_pipe_is_read_to_its_end(has_content: bool, tmp_path: Path) -> None:
    path = Path("/dev/null")
    if has_content:
        path = tmp_path / "requests"
        path.write_text(json.dumps(HELLO) + "\n")
    pipe = subprocess.PIPE
    with path.open("rb") as file:
        process = CommandProcess[str](["mcp"], stdin=file, stdout=pipe, stderr=pipe, text=True)
        with process:
            out, err = process.communicate()
    assert (process.returncode, err) == (0, "")
    assert has_content == ("serverInfo" in out)


def test_in_a_terminal_one_line_says_what_starts_the_command() -> None:
    controller, terminal = os.openpty()
    command = (sys.executable, "-m", "cellblock", "mcp")
    try:
        with subprocess.Popen(command, stdin=terminal, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            assert b"docs/mcp.md" in process.stderr.readline()
            process.terminate()
            assert process.stderr.read() == b""
    finally:
        os.close(controller)
        os.close(terminal)
