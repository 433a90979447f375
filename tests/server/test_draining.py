"""SIGTERM: the server answers while its runs end, and ends what remains after the drain time."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from .mcp.mcp_client import ACCEPT, HELLO
from .rest.requesting import FOREVER, ServerEvent, parse_events, start, wait_for
from .serving import NEW, OLD, Server, run_old, serving

_LONG = ("--drain", "300")  # far above the time of a test


def _gauge(client: httpx.Client, name: str) -> int:
    text = client.get("/metrics").text
    found = re.search(rf"^cellblock_{name} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def _begin_drain(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: httpx.get(f"{server.url}/ready").status_code == 503)


def _run_rest(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/runs", json={"code": FOREVER})


def _run_bash(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/runs", json={"code": "sleep 1000", "language": "bash"})


def _run_sandbox_fusion(client: httpx.Client) -> httpx.Response:
    body = {"code": FOREVER, "language": "python", "run_timeout": 100}
    return client.post("/run_code", json=body)


def _run_nemo_skills(client: httpx.Client) -> httpx.Response:
    body = {"generated_code": FOREVER, "language": "python", "timeout": 100}
    return client.post("/execute", json=body)


def test_after_the_drain_time_each_door_answers_with_its_own_error(tmp_path: Path) -> None:
    """So do a run that waits for its turn, a stream of events, and an upload that stalls.

    A client that does not read its file does not delay the end.
    """
    runs: list[Callable[[httpx.Client], httpx.Response]] = [
        _run_rest,
        _run_bash,
        lambda client: run_old(client, FOREVER),
        _run_sandbox_fusion,
        _run_nemo_skills,
    ]
    options = ("--drain", "1", "--max-running", "6", "--stall", "300")
    with (
        serving(tmp_path, *options) as server,
        server.client(server.add_key("ended")) as client,
        ThreadPoolExecutor(len(runs) + 1) as pool,
        socket.create_connection(server.address, timeout=60) as upload,
        socket.create_connection(server.address, timeout=60) as download,
    ):
        _begin_to_upload(upload, client)
        _begin_to_download(download, client)
        waiting = [pool.submit(run, client) for run in runs]
        body = {"code": FOREVER, "stream": True}
        with client.stream("POST", "/v1/runs", json=body) as answer:
            events = parse_events(answer.iter_lines())
            assert next(events).name == "run"
            wait_for(lambda: _gauge(client, "runs_active") == 6)
            waiting.insert(0, pool.submit(_run_rest, client))
            wait_for(lambda: _gauge(client, "runs_waiting") == 1)
            server.process.send_signal(signal.SIGTERM)
            _check_answers([each.result() for each in waiting])
            _check_end(events)
        answered = b"".join(iter(lambda: upload.recv(65536), b""))
        assert answered.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"ServerStopping"' in answered
        assert server.process.wait() == 0
    assert "Traceback" not in "".join(server.lines)
    assert '"level": "error"' not in "".join(server.lines)


def _check_answers(answers: list[httpx.Response]) -> None:
    assert [each.status_code for each in answers] == [503] * len(answers)
    assert all(int(each.headers["retry-after"]) > 0 for each in answers)
    *others, nemo_skills = answers
    assert {each.json()["error"]["code"] for each in others} == {"ServerStopping"}
    assert nemo_skills.json()["process_status"] == "error"


def _check_end(events: Iterator[ServerEvent]) -> None:
    last = list(events)[-1]
    assert (last.name, last.data["code"]) == ("failed", "ServerStopping")


def _begin_to_upload(one: socket.socket, client: httpx.Client) -> None:
    client.post("/v1/sessions", json={"id": "mine"})
    one.sendall(
        b"PUT /v1/sessions/mine/files/f HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        b"Expect: 100-continue\r\nAuthorization: "
        + client.headers["authorization"].encode()
        + b"\r\n\r\n"
    )
    assert one.recv(1000).startswith(b"HTTP/1.1 100 ")  # the server reads the body


def _begin_to_download(one: socket.socket, client: httpx.Client) -> None:
    run_old(client, f"open('large', 'wb').truncate({64 << 20})", "large")
    one.sendall(
        f"GET /files/content/large?api-version={OLD}&identifier=large HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {client.headers['authorization']}\r\n\r\n".encode()
    )
    assert one.recv(1)  # and nothing more


def test_a_draining_server_answers_all_but_new_work_until_the_last_run_ends(
    tmp_path: Path,
) -> None:
    """An open stream of MCP does not delay the end."""
    with (
        serving(tmp_path, *_LONG) as server,
        server.client(server.add_key("drained"), "/v1") as client,
        server.client(server.add_key("other")) as other,
    ):
        assert client.post("/sessions", json={"id": "mine"}).status_code == 201
        run = start(client, "/sessions/mine", FOREVER)
        wait_for(lambda: client.get(run).json()["status"] == "running")
        made = other.post("/mcp", json=HELLO, headers=ACCEPT)
        headers = {**ACCEPT, "mcp-session-id": made.headers["mcp-session-id"]}
        with other.stream("GET", "/mcp", headers=headers) as mcp:
            assert mcp.status_code == 200
            _begin_drain(server)
            assert httpx.get(f"{server.url}/health").status_code == 200
            assert _gauge(other, "draining") == 1
            for path in ("/runs", "/sessions/mine/runs"):
                refused = client.post(path, json={"code": "1"})
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "ServerStopping"
                assert int(refused.headers["retry-after"]) > 0
            assert client.post("/sessions").status_code == 503
            assert client.put("/sessions/mine/files/f", content=b"x").status_code == 200
            assert client.get(run).json()["status"] == "running"
            with client.stream("GET", f"{run}/events") as answer:
                events = parse_events(answer.iter_lines())
                assert next(events).name == "run"
                assert httpx.post(f"{server.url}/v1{run}/cancel", headers=client.headers).is_success
                assert list(events)[-1].data["outcome"] == "cancelled"
            mcp.read()  # raises an error if the end is missing
        assert server.process.wait() == 0
    assert '"level": "error"' not in "".join(server.lines)


def test_sigterm_lets_current_runs_end(tmp_path: Path) -> None:
    code = "open('begun', 'w').close()\nimport os, time\n"
    code += "while not os.path.exists('go'): time.sleep(0.02)\n'done'"
    params = {"api-version": OLD, "identifier": "main"}
    with (
        serving(tmp_path) as server,
        server.client(server.add_key("a")) as client,
        ThreadPoolExecutor() as pool,
    ):
        current = pool.submit(run_old, client, code)
        wait_for(lambda: client.get("/files/content/begun", params=params).status_code == 200)
        _begin_drain(server)
        upload = {"file": ("go", b"")}
        assert client.post("/files/upload", params=params, files=upload).is_success
        assert current.result().json()["properties"]["result"] == "done"
        assert server.process.wait() == 0


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)]
)
def test_a_second_signal_ends_the_drain_time(tmp_path: Path, number: signal.Signals) -> None:
    with (
        serving(tmp_path, *_LONG) as server,
        server.client(server.add_key("twice")) as client,
        ThreadPoolExecutor() as pool,
    ):
        running = pool.submit(_run_rest, client)
        start(client, "/v1", FOREVER)
        wait_for(lambda: _gauge(client, "runs_active") == 2)
        _begin_drain(server)
        server.process.send_signal(number)
        assert running.result().status_code == 503
        assert server.process.wait() == 0


def test_a_program_ends_with_its_session(server: Server, client: httpx.Client) -> None:
    query = {"api-version": NEW, "identifier": "program"}
    body = {"shellCommand": "sleep 1000"}
    with server.client(server.add_key("reader of gauges")) as reader, ThreadPoolExecutor() as pool:
        running: Future[httpx.Response] = pool.submit(
            client.post, "/executions", params=query, json=body
        )
        wait_for(lambda: _gauge(reader, "runs_active") == 1)
        assert client.delete("/session", params=query).is_success
        assert running.result().status_code == 404  # not the answer of a time limit
