"""What a client must not get: a request with two lengths, and the server's internals."""

from __future__ import annotations

import socket
from pathlib import Path

from cellblock.errors import BackendError, BackendLost, SessionError
from cellblock.server.http.statuses import message_of
from tests.cli.cli_process import run_command

from .serving import Server

SMUGGLED = (
    b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"
)


def test_a_request_with_two_lengths_ends_the_connection(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as one:
        one.sendall(SMUGGLED)
        answer = b"".join(iter(lambda: one.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_clients_do_not_see_the_servers_internals() -> None:
    text = "It wrote: Traceback (most recent call last):\n  File '/srv/cellblock/x.py', line 1"
    for error in (BackendError(text), BackendLost(text), OSError(text)):
        assert "/srv" not in message_of(error)
        assert "Traceback" not in message_of(error)
    assert message_of(SessionError("busy")) == "busy"


def test_a_missing_folder_of_the_database_is_an_error(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/misspelt/keys.db"
    for command in (["keys", "add", "me"], ["serve", "--port", "0"]):
        done = run_command(*command, "--database", url)
        assert done.returncode != 0
        assert f"The folder {tmp_path}/misspelt of the database does not exist." in done.stderr
    assert not (tmp_path / "misspelt").exists()
