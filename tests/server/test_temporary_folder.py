"""The temporary files of a server are removed, also if all its processes are killed at once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .rest.requesting import wait_for
from .serving import Server, serving

pytestmark = pytest.mark.depends_on_user


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder for temporary files of servers that the test starts."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def _upload(url: str) -> None:
    assert httpx.post(f"{url}/v1/sessions", json={"id": "a"}).status_code == 201
    assert httpx.put(f"{url}/v1/sessions/a/files/data", content=b"kept").is_success


def test_the_next_server_removes_the_files_of_a_killed_one(tmp_path: Path, temporary: Path) -> None:
    with serving(tmp_path, "--no-auth") as killed:
        _upload(killed.url)
        _kill_all_at_once(killed)
    assert [*temporary.rglob("data")]
    with serving(tmp_path, "--no-auth") as server:
        assert not [*temporary.rglob("data")]
        assert [line for line in server.lines if "removing files of a killed server" in line]
    assert not [*temporary.iterdir()]


def _kill_all_at_once(server: Server) -> None:
    """Kill a server and all that it has started, before one sees that another has ended."""
    server.process.send_signal(signal.SIGSTOP)
    for pid in [*_descendants(server.process.pid)]:
        os.kill(pid, signal.SIGKILL)
    server.kill()


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            os.kill(child, signal.SIGSTOP)
            yield from _descendants(child)
            yield child


def test_servers_leave_the_files_of_others_that_run(tmp_path: Path, temporary: Path) -> None:
    with serving(tmp_path, "--no-auth") as first:
        _upload(first.url)
        with serving(tmp_path, "--no-auth"):
            pass
        assert httpx.get(f"{first.url}/v1/sessions/a/files/data").content == b"kept"
        assert [*temporary.rglob("data")]
    assert not [*temporary.iterdir()]


def test_a_killed_server_leaves_no_folder_and_no_process(tmp_path: Path, temporary: Path) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    with serving(tmp_path, "--no-auth") as server, server.client(None) as client:
        _upload(server.url)
        command = f"setsid sh -c 'sleep 100; true' {mark} >/dev/null 2>&1 &"
        assert client.post("/v1/sessions/a/commands", json={"command": command}).is_success
        assert _has_process(mark)
        assert _has_data(temporary)
        server.kill()
    wait_for(lambda: not _has_data(temporary))
    wait_for(lambda: not _has_process(mark))


def _has_data(folder: Path) -> bool:
    """Look for the file. What is removed meanwhile is no error."""
    return any("data" in files for _, _, files in os.walk(folder))


def _has_process(mark: str) -> bool:
    done = subprocess.run(["ps", "ax"], capture_output=True, text=True, check=True)
    return mark in done.stdout
