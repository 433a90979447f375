"""`cellblock mcp --executor docker`: the sessions of the official client are containers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from tests.containers import docker_engine
from tests.executors.session import session_image
from tests.server.mcp.mcp_client import (
    COMMAND,
    call,
    call_refused,
    run_async,
    run_code,
)

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        yield session_image.use_session_image(patch)


def test_code_and_files_are_in_a_container(image: str, tmp_path: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=[*COMMAND, "--executor", "docker", "--image", image, "--timeout", "5"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    async def check() -> None:
        async with Client(server) as client:
            await run_code(client, "x = 6; open('made.txt', 'w').write('from code') and None")
            assert (await run_code(client, "x * 7"))["stdout"] == "42\n"
            await call(client, "write_file", path="in/given.txt", content="given")
            shell = await run_code(client, "cat /mnt/data/in/given.txt", language="bash")
            assert shell["stdout"] == "given"
            files = (await call(client, "list_files"))["files"]
            assert [each["path"] for each in files] == ["in", "in/given.txt", "made.txt"]
            assert (await call(client, "read_file", path="made.txt"))["content"] == "from code"
            late = await run_code(client, "while True: pass", timeout_seconds=1)
            assert late["outcome"] == "timeout"
            await call(client, "checkpoint", name="a")
            await run_code(client, "x = 7; open('made.txt', 'w').close()")
            await call(client, "restore", name="a")
            assert (await run_code(client, "print(x, open('made.txt').read())"))["stdout"] == (
                "6 from code\n"
            )
            assert "--executor docker" in await call_refused(client, "fork")
            assert containers_of(tmp_path) != []
        assert containers_of(tmp_path) == []
        assert list(tmp_path.iterdir()) == []

    run_async(check())


def containers_of(folder: Path) -> list[str]:
    """Return the containers that see a folder in `folder`."""
    engine = docker_engine.shared_engine()
    rows = engine.docker("ps", "--all", "--no-trunc", "--format", "{{.Mounts}}")
    return [row for row in rows.splitlines() if str(folder) in row]
