"""A `cellblock serve` of the benchmark's own, in a process of its own, and a small client."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from benchmarks.measure import ROOT, NotMeasured
from benchmarks.processes import process_tree

_SECONDS = 120
_IDLE_SECONDS = 2  # the server closes a connection that is idle for 5 s
_DATABASE = "server.db"
_OLD, _NEW = "2024-02-02-preview", "2025-02-02-preview"  # the dialects of the Azure door


class Client:
    """One connection to a server. An answer with another status than 2xx raises `RequestFailed`."""

    def __init__(self, url: str, key: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_SECONDS)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._last_used = time.monotonic()

    def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Return the JSON of the answer, or None if it has no body."""
        content = None if body is None else json.dumps(body).encode()
        if time.monotonic() - self._last_used > _IDLE_SECONDS:
            self._connection.close()  # the next request opens it again
        self._connection.request(method, path, content, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        self._last_used = time.monotonic()
        if not 200 <= answer.status < 300:
            raise RequestFailed(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        return json.loads(text) if text else None

    def create_session(self) -> str:
        """Return the identifier of a new session."""
        return str(self.request("POST", "/v1/sessions")["id"])

    def run(self, session: str, code: str) -> str:
        """Return the standard output of code in a session. Raise `RequestFailed` if it fails."""
        info = self.request("POST", f"/v1/sessions/{session}/runs", {"code": code})
        result = info["result"]
        if result is None or result["exit_code"] != 0:
            raise RequestFailed(f"A run failed: {info}")
        return str(result["stdout"])

    def run_once(self, code: str) -> str:
        """Return the standard output of code in a process of its own."""
        return str(self.request("POST", "/v1/runs", {"code": code})["result"]["stdout"])

    def judge(self, code: str) -> str:
        """Return the standard output of a program through the SandboxFusion door."""
        done = self.request("POST", "/run_code", {"code": code, "language": "python"})
        return str(done["run_result"]["stdout"])

    def delete_session(self, session: str) -> None:
        """End a session."""
        self.request("DELETE", f"/v1/sessions/{session}")

    def run_as_azure(self, identifier: str, code: str) -> str:
        """Run code through the Azure door, which makes the session. Return its standard output."""
        body = {"codeInputType": "inline", "executionType": "synchronous", "code": code}
        path = f"/code/execute?api-version={_OLD}&identifier={identifier}"
        done = self.request("POST", path, {"properties": body})["properties"]
        if done["status"] != "Success":
            raise RequestFailed(f"A run failed: {done}")
        return str(done["stdout"])

    def delete_as_azure(self, identifier: str) -> None:
        """End a session through the Azure door."""
        self.request("DELETE", f"/session?api-version={_NEW}&identifier={identifier}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class RequestFailed(Exception):
    """The server refused a request, or a run failed."""


class Server:
    """A running server. `folder` has all files of the server and its sessions."""

    def __init__(self, process: subprocess.Popen[str], key: str, folder: Path) -> None:
        self.process, self._key, self._folder = process, key, folder
        self.log: list[str] = []
        self._url = self._wait_for_url()
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    @contextlib.contextmanager
    def client(self) -> Generator[Client]:
        """Yield a new connection."""
        client = Client(self._url, self._key)
        try:
            yield client
        finally:
            client.close()

    def processes(self) -> list[int]:
        """Return the process IDs of the server and all sessions."""
        return process_tree(self.process.pid)

    def files(self) -> list[str]:
        """Return the temporary files and folders of the server and its sessions."""
        return sorted(path.name for path in temporary_folder(self._folder).iterdir())

    def descriptors(self) -> list[str]:
        """Return what the server has open, without the connections of its pool to its database."""
        found: list[str] = []
        for link in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found.append(str(link.readlink()))
        return [name for name in found if not name.startswith(str(self._folder / _DATABASE))]

    def errors(self) -> list[str]:
        """Return the lines of the log that report a failure of the server."""
        return [line for line in self.log if '"level": "error"' in line or '"status": 5' in line]

    def stop(self) -> None:
        """End the server if it still runs, and wait for its end."""
        self.process.terminate()
        try:
            self.process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._reader.join(_SECONDS)

    def _wait_for_url(self) -> str:
        for line in self._stderr:
            self.log.append(line)
            _, found, url = line.partition("serving on ")
            if found:
                return url.strip()
        raise NotMeasured(f"The server did not start: {''.join(self.log).strip()}")

    def _read_log(self) -> None:
        self.log.extend(self._stderr)

    @property
    def _stderr(self) -> IO[str]:
        assert self.process.stderr is not None
        return self.process.stderr


@contextlib.contextmanager
def running_server(*options: str) -> Generator[Server]:
    """Yield a server with one key. Raise `NotMeasured` if it does not start."""
    with tempfile.TemporaryDirectory(prefix="cellblock-benchmark-") as name:
        folder = Path(name)
        temporary_folder(folder).mkdir()
        key = _command(folder, "keys", "add", "benchmark", stdout=subprocess.PIPE)
        arguments = ("serve", "--port", "0", *options)
        with key, _command(folder, *arguments, stderr=subprocess.PIPE) as process:
            server = Server(process, key.communicate()[0].strip(), folder)
            try:
                yield server
            finally:
                server.stop()


def temporary_folder(folder: Path) -> Path:
    """Return the folder for the temporary files of a server whose state is in `folder`."""
    return folder / "tmp"


def _command(
    folder: Path, *arguments: str, stdout: int | None = None, stderr: int | None = None
) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "CELLBLOCK_DATABASE": f"sqlite:///{folder}/{_DATABASE}",
        "PYTHONPATH": str(ROOT / "src"),
        "TMPDIR": str(temporary_folder(folder)),
    }
    line = [sys.executable, "-m", "cellblock", *arguments]
    return subprocess.Popen(line, env=environment, stdout=stdout, stderr=stderr, text=True)
