"""Clients that stall, lie about lengths or read slowly, on plain sockets."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import time
from pathlib import Path

import httpx
import pytest

from cellblock.server.process import ServerSettings

from .conftest import Servers
from .rest.requesting import wait_for
from .serving import OLD, Server, run_old, serving

_MIB = 1 << 20
_STALL = 1


@pytest.fixture(scope="module")
def hasty(servers: Servers) -> Server:
    """Return a server that disconnects clients that stall for a second."""
    return servers("--stall", str(_STALL), "--max-body", "1M")


def _connected(server: Server) -> socket.socket:
    return socket.create_connection(server.address, timeout=None)


def _read_all(one: socket.socket) -> bytes:
    """Return what the server sends until it closes the connection."""
    return b"".join(iter(lambda: one.recv(65536), b""))


def test_half_sent_headers_are_timed_out(hasty: Server) -> None:
    with _connected(hasty) as one:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
        answer = _read_all(one)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert _error_code(answer) == "RequestTimeout"


def _error_code(answer: bytes) -> str:
    return json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"]


def test_half_a_body_is_timed_out(hasty: Server) -> None:
    answer = _post(hasty, "Content-Length: 500", b'{"code": ')
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert _error_code(answer) == "RequestTimeout"


def test_a_connection_without_a_further_request_is_closed_after_the_time_of_the_option(
    servers: Servers,
) -> None:
    """Load balancers keep idle connections for 60 s, and must be the first to close them."""
    assert ServerSettings().keep_alive_seconds > 60
    with _connected(servers("--keep-alive", "1")) as one:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert _read_all(one).endswith(b'{"status":"ok"}')


def test_connections_leave_files_for_sessions_and_do_not_flood_the_log(tmp_path: Path) -> None:
    with serving(tmp_path) as server, contextlib.ExitStack() as stack:
        pid, most = server.process.pid, 120
        files = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, files[1]))
        held = [stack.enter_context(_connected(server)) for _ in range(most // 2)]
        with _connected(server) as refused:
            answer = _read_all(refused)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 10\r\n" in answer
        assert _error_code(answer) == "ServerFull"
        held.pop().close()
        with server.client(server.add_key("me"), "/v1") as client:
            assert client.post("/sessions").status_code == 201
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, files[1]))
        with _connected(server):  # cannot be accepted
            wait_for(lambda: any("cannot be accepted" in line for line in server.lines))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, files)
        assert httpx.get(f"{server.url}/health").status_code == 200
    assert sum("accept" in line for line in server.lines) == 1, server.lines


def test_what_is_not_http_is_answered_as_other_errors_are(hasty: Server) -> None:
    for request in (
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nNo colon\r\n\r\n",
        b"\x16\x03\x01\r\n",
    ):
        with _connected(hasty) as one:
            one.sendall(request)
            answer = _read_all(one)
        assert (answer[:13], _error_code(answer)) == (b"HTTP/1.1 400 ", "InvalidRequest"), request


def test_a_damaged_body_is_answered_once_and_does_not_fail(hasty: Server) -> None:
    answer = _post(hasty, "Transfer-Encoding: chunked", b"5\r\nhello\r\nnonsense\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert "Traceback" not in "".join(hasty.lines)


def test_a_byte_now_and_then_does_not_extend_the_time(hasty: Server) -> None:
    with _connected(hasty) as one, contextlib.suppress(ConnectionError):
        one.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        one.settimeout(_STALL / 10)
        while True:  # the server ends it
            one.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                if one.recv(100):
                    break


def test_a_connection_without_a_request_is_closed(hasty: Server) -> None:
    with _connected(hasty) as one:
        assert b" 408 " in _read_all(one)


def test_the_second_request_of_a_connection_has_the_same_limit(hasty: Server) -> None:
    with _connected(hasty) as one:
        one.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
        one.sendall(b"GET /health HTTP/1.1\r\n")
        assert b"HTTP/1.1 408 " in _read_all(one)


@pytest.mark.slow
def test_a_run_may_take_longer_than_a_client_may_stall(hasty: Server) -> None:
    with hasty.client(hasty.add_key("patient")) as client:
        code = f"import time; time.sleep({2 * _STALL}); 6 * 7"
        assert run_old(client, code).json()["properties"]["result"] == 42


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected(hasty: Server) -> None:
    key = hasty.add_key("slow reader")
    with hasty.client(key) as client:
        run_old(client, f"open('large', 'wb').write(bytes({64 * _MIB}))")
        with _connected(hasty) as slow:
            path = f"/files/content/large?api-version={OLD}&identifier=main"
            slow.sendall(
                f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
            )
            assert slow.recv(1)  # and nothing more
            while _has_open(hasty, "large"):
                assert run_old(client, "6 * 7").json()["properties"]["result"] == 42


def _has_open(server: Server, name: str) -> bool:
    """Return True if the server has a file of this name open."""
    found = False
    for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found |= link.readlink().name == name
    return found


def test_impossible_and_two_lengths_are_refused(hasty: Server) -> None:
    for length in ("-1", "abc", "1, 2", "99999999999999999999999", "13\r\nContent-Length: 200"):
        answer = _post(hasty, f"Content-Length: {length}", b'{"code": "1"}')
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 413 ")), length


def test_a_request_with_a_length_and_chunks_ends_the_connection(hasty: Server) -> None:
    """What follows is not taken for another request."""
    headers = "Content-Length: 5\r\nTransfer-Encoding: chunked"
    answer = _post(hasty, headers, b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_what_follows_an_announced_body_is_not_part_of_it(hasty: Server) -> None:
    answer = _post(hasty, "Content-Length: 2", b'{}"code": "open(1)"}\r\n\r\n')
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"'code' is not valid: Field required" in answer
    assert b"HTTP/1.1 200 " not in answer


def test_a_body_that_is_shorter_than_announced_is_not_run(hasty: Server) -> None:
    answer = _post(hasty, "Content-Length: 500", b'{"code": "1"}', end=True)
    assert b" 200 " not in answer


def test_a_body_without_an_announced_length_is_limited(hasty: Server) -> None:
    chunk = b"10000\r\n" + bytes(65536) + b"\r\n"
    answer = _post(hasty, "Transfer-Encoding: chunked", chunk * 32 + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def _post(server: Server, headers: str, body: bytes, *, end: bool = False) -> bytes:
    """Send a run with these headers of length, and return all answers."""
    key = server.keys.add(f"liar {time.monotonic_ns()}")[1]
    head = f"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n{headers}\r\n\r\n"
    with _connected(server) as one:
        with contextlib.suppress(ConnectionError):  # it may close before it has read all
            one.sendall(head.encode() + body)
            if end:
                one.shutdown(socket.SHUT_WR)
        return _read_all(one)
