"""`cellblock mcp --executor docker`: the sessions of the official client are containers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.containers import docker_engine
from tests.executors.session import session_image
from tests.server.mcp.mcp_client import Tools, tools_of

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def test_code_and_files_are_in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp import Client, StdioServerParameters

    image = session_image.use_session_image(monkeypatch)
    options = ["--executor", "docker", "--image", image, "--timeout", "5"]
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "cellblock", "mcp", *options],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    with tools_of(Client(server)) as tools:
        _use(tools)
        assert containers_of(tmp_path) != []
    assert containers_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def _use(tools: Tools) -> None:
    tools.run("x = 6; open('made.txt', 'w').write('from code') and None")
    assert tools.run("x * 7")["stdout"] == "42\n"
    tools.data("write_file", path="in/given.txt", content="given")
    assert tools.run("cat /mnt/data/in/given.txt", language="bash")["stdout"] == "given"
    files = tools.data("list_files")["files"]
    assert [each["path"] for each in files] == ["in", "in/given.txt", "made.txt"]
    assert tools.data("read_file", path="made.txt")["content"] == "from code"
    assert tools.run("while True: pass", timeout_seconds=1)["outcome"] == "timeout"
    tools.data("checkpoint", name="a")
    tools.run("x = 7; open('made.txt', 'w').close()")
    tools.data("restore", name="a")
    assert tools.run("print(x, open('made.txt').read())")["stdout"] == "6 from code\n"
    assert "--executor docker" in tools.refusal("fork")


def containers_of(folder: Path) -> list[str]:
    """Return the containers that see a folder in `folder`."""
    engine = docker_engine.shared_engine()
    rows = engine.docker("ps", "--all", "--no-trunc", "--format", "{{.Mounts}}")
    return [row for row in rows.splitlines() if str(folder) in row]
