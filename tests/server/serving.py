"""Start `cellblock serve` on a free port of loopback, with keys of the test's own."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from cellblock.server.keys.key_store import KeyStore
from cellblock.server.owners import Overrides, Quotas
from cellblock.server.state.database import open_database
from tests.command_server import CommandProcess

OLD, NEW = "2024-02-02-preview", "2025-02-02-preview"


@dataclass
class Server:
    """A running server. `lines` has what it wrote to standard error since `first_line`."""

    process: subprocess.Popen[str]
    url: str
    keys: KeyStore
    database: str
    all_lines: list[str] = field(default_factory=list[str])
    first_line: int = 0
    is_killed: bool = False

    @property
    def lines(self) -> list[str]:
        return self.all_lines[self.first_line :]

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def kill(self) -> None:
        """Kill the process, so that it cannot end with exit code 0."""
        self.is_killed = True
        self.process.kill()
        self.process.wait()

    def add_key(
        self, name: str, quotas: Quotas | None = None, overrides: Overrides | None = None
    ) -> str:
        """Return a new key."""
        return self.keys.add(name, quotas=quotas, overrides=overrides)[1]

    def client(self, key: str | None, prefix: str = "") -> httpx.Client:
        """Return a client that sends `key`."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url + prefix, headers=headers, timeout=60)


@contextlib.contextmanager
def serving(
    folder: Path, *options: str, database: str | None = None, is_forked: bool = True
) -> Generator[Server]:
    """Yield a server whose state is in `folder`. SIGTERM must end it with exit code 0.

    It is for tests that change a server, restart it, or look at its whole log. Others share one, by
    the fixtures `server` and `servers`.

    `database` is the URL of another place for keys, usage and the log.

    A test that sends SIGTERM itself waits for the end: a second one may kill an ending Python.
    It is a fork of a process that has imported Cellblock already, unless `is_forked` is false.
    """
    url = database or f"sqlite:///{folder}/server.db"
    keys = KeyStore(open_database(url))
    arguments = ["serve", "--port", "0", "--drain", "5", *options]
    start = CommandProcess[str] if is_forked else subprocess.Popen[str]
    process = start(
        arguments if is_forked else [sys.executable, "-m", "cellblock", *arguments],
        env={**os.environ, "CELLBLOCK_DATABASE": url, "XDG_STATE_HOME": str(folder)},
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Server(process, "", keys, url)
    reader = threading.Thread(target=_read, args=(server,), daemon=True)
    try:
        server.url = _wait_for_url(server)
        reader.start()
        yield server
        if not server.is_killed:
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0, server.lines
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if reader.ident is not None:
            reader.join()
        assert process.stderr is not None
        process.stderr.close()
        keys.close()


def _wait_for_url(server: Server) -> str:
    assert server.process.stderr is not None
    for line in server.process.stderr:
        server.all_lines.append(line)
        _, found, url = line.partition("serving on ")
        if found:
            return url.strip()
    raise AssertionError(f"The server did not start: {server.lines}")


def _read(server: Server) -> None:
    assert server.process.stderr is not None
    server.all_lines.extend(server.process.stderr)


@contextlib.contextmanager
def leaving_post(
    server: Server,
    client: httpx.Client,
    path: str,
    body: dict[str, Any],
    headers: dict[str, str] | None = None,
) -> Generator[None]:
    """Send a request with the key of `client`, and close its connection without reading."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"))
    sent = {"Authorization": client.headers["Authorization"], "Content-Type": "application/json"}
    try:
        connection.request("POST", path, json.dumps(body), {**sent, **(headers or {})})
        yield
    finally:
        connection.close()


def run_old(client: httpx.Client, code: str, identifier: str = "main") -> httpx.Response:
    """Run code in the old dialect."""
    return client.post(
        "/code/execute",
        params={"api-version": OLD, "identifier": identifier},
        json={
            "properties": {
                "codeInputType": "inline",
                "executionType": "synchronous",
                "code": code,
            }
        },
    )
