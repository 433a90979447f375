"""The temporary files of a server are removed, also if all its processes are killed at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from .serving import serving


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
    command = [sys.executable, "-m", "cellblock", "serve", "--no-auth", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        _upload(next(line for line in process.stderr if "serving on" in line).split()[-1])
        _kill_at_once(process)
    assert [*temporary.rglob("data")]
    with serving(tmp_path, "--no-auth") as server:
        assert not [*temporary.rglob("data")]
        assert [line for line in server.lines if "removing files of a killed server" in line]
    assert not [*temporary.iterdir()]


def _kill_at_once(process: subprocess.Popen[str]) -> None:
    """Kill a process and all that it has started, before one sees that another has ended."""
    process.send_signal(signal.SIGSTOP)
    for pid in [*_descendants(process.pid)]:
        os.kill(pid, signal.SIGKILL)
    process.kill()


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
