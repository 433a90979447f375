"""SIGTERM: the server answers while its runs end, and ends what remains after the drain time."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from .rest.requesting import FOREVER, parse_events, start, wait_for
from .serving import NEW, OLD, Server, run_old, serving

_LONG = ("--drain", "300")  # far above the time of a test
_SHORT = ("--drain", "1", "--max-running", "8")


def _gauge(client: httpx.Client, name: str) -> int:
    found = re.search(rf"^cellblock_{name} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def _begin_drain(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: httpx.get(f"{server.url}/ready").status_code == 503)


def _run_rest(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/runs", json={"code": FOREVER})


def _run_bash(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/runs", json={"code": "sleep 1000", "language": "bash"})


def _run_azure(client: httpx.Client) -> httpx.Response:
    return run_old(client, FOREVER)


def _run_sandbox_fusion(client: httpx.Client) -> httpx.Response:
    body = {"code": FOREVER, "language": "python", "run_timeout": 100}
    return client.post("/run_code", json=body)


def _run_nemo_skills(client: httpx.Client) -> httpx.Response:
    body = {"generated_code": FOREVER, "language": "python", "timeout": 100}
    return client.post("/execute", json=body)


def test_after_the_drain_time_each_door_answers_with_its_own_error(tmp_path: Path) -> None:
    runs: list[Callable[[httpx.Client], httpx.Response]] = [
        _run_rest,
        _run_bash,
        _run_azure,
        _run_sandbox_fusion,
        _run_nemo_skills,
    ]
    with (
        serving(tmp_path, *_SHORT) as server,
        server.client(server.add_key("ended")) as client,
        ThreadPoolExecutor(len(runs)) as pool,
    ):
        waiting = [pool.submit(run, client) for run in runs]
        wait_for(lambda: _gauge(client, "runs_active") == len(runs))
        server.process.send_signal(signal.SIGTERM)
        answers = [each.result() for each in waiting]
        assert [each.status_code for each in answers] == [503] * len(runs)
        assert all(int(each.headers["retry-after"]) > 0 for each in answers)
        codes = [each.json()["error"]["code"] for each in answers[:4]]
        assert codes == ["ServerStopping"] * 4
        assert answers[4].json()["process_status"] == "error"
        assert server.process.wait() == 0
    assert "Traceback" not in "".join(server.lines)
    assert '"level": "error"' not in "".join(server.lines)


def test_a_waiting_run_is_answered_after_the_drain_time(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--drain", "1", "--max-running", "1") as server,
        server.client(server.add_key("waiting")) as client,
        ThreadPoolExecutor() as pool,
    ):
        active = pool.submit(_run_rest, client)
        wait_for(lambda: _gauge(client, "runs_active") == 1)
        waiting = pool.submit(_run_rest, client)
        wait_for(lambda: _gauge(client, "runs_waiting") == 1)
        server.process.send_signal(signal.SIGTERM)
        assert [each.result().status_code for each in (active, waiting)] == [503, 503]
        assert server.process.wait() == 0


def test_a_stream_ends_with_its_last_event_after_the_drain_time(tmp_path: Path) -> None:
    with (
        serving(tmp_path, *_SHORT) as server,
        server.client(server.add_key("stream"), "/v1") as client,
    ):
        body = {"code": FOREVER, "stream": True}
        with client.stream("POST", "/runs", json=body) as answer:
            events = parse_events(answer.iter_lines())
            assert next(events).name == "run"
            server.process.send_signal(signal.SIGTERM)
            last = list(events)[-1]
            assert (last.name, last.data["code"]) == ("failed", "ServerStopping")
        assert server.process.wait() == 0


def test_a_draining_server_answers_all_but_new_work_until_the_last_run_ends(
    tmp_path: Path,
) -> None:
    with (
        serving(tmp_path, *_LONG) as server,
        server.client(server.add_key("drained"), "/v1") as client,
    ):
        assert client.post("/sessions", json={"id": "mine"}).status_code == 201
        run = start(client, "/sessions/mine", FOREVER)
        wait_for(lambda: client.get(run).json()["status"] == "running")
        _begin_drain(server)
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert _gauge_of(server, "draining") == 1
        for path in ("/runs", "/sessions/mine/runs"):
            refused = client.post(path, json={"code": "1"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "ServerStopping")
            assert int(refused.headers["retry-after"]) > 0
        assert client.post("/sessions").status_code == 503
        assert client.put("/sessions/mine/files/f", content=b"x").status_code == 200
        assert client.get(run).json()["status"] == "running"
        with client.stream("GET", f"{run}/events") as answer:
            events = parse_events(answer.iter_lines())
            assert next(events).name == "run"
            assert httpx.post(f"{server.url}/v1{run}/cancel", headers=client.headers).is_success
            assert list(events)[-1].data["outcome"] == "cancelled"
        assert server.process.wait() == 0


def _gauge_of(server: Server, name: str) -> int:
    with server.client(server.add_key(name)) as client:
        return _gauge(client, name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_drain_time(tmp_path: Path, number: signal.Signals) -> None:
    with (
        serving(tmp_path, *_LONG) as server,
        server.client(server.add_key("twice")) as client,
        ThreadPoolExecutor() as pool,
    ):
        running = pool.submit(_run_rest, client)
        wait_for(lambda: _gauge(client, "runs_active") == 1)
        _begin_drain(server)
        server.process.send_signal(number)
        assert running.result().status_code == 503
        assert server.process.wait() == 0


def test_an_open_event_stream_of_mcp_does_not_delay_the_end(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    message: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    with serving(tmp_path, *_LONG) as server, server.client(server.add_key("mcp")) as client:
        headers = {"accept": "application/json, text/event-stream"}
        made = client.post("/mcp", json=message, headers=headers)
        headers["mcp-session-id"] = made.headers["mcp-session-id"]
        with client.stream("GET", "/mcp", headers=headers) as answer:
            assert answer.status_code == 200
            server.process.send_signal(signal.SIGTERM)
            answer.read()  # raises an error if the end is missing
        assert server.process.wait() == 0
    assert '"level": "error"' not in "".join(server.lines)


def test_a_stalled_upload_is_answered_after_the_drain_time(tmp_path: Path) -> None:
    with (
        serving(tmp_path, *_SHORT, "--stall", "300") as server,
        server.client(server.add_key("stalled")) as client,
    ):
        client.post("/v1/sessions", json={"id": "mine"})
        with socket.create_connection(_address(server), timeout=60) as one:
            one.sendall(
                b"PUT /v1/sessions/mine/files/f HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
                b"Expect: 100-continue\r\nAuthorization: "
                + client.headers["authorization"].encode()
                + b"\r\n\r\n"
            )
            assert one.recv(1000).startswith(b"HTTP/1.1 100 ")  # the server reads the body
            server.process.send_signal(signal.SIGTERM)
            answer = b"".join(iter(lambda: one.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b'"code":"ServerStopping"' in answer
        assert server.process.wait() == 0
    assert "Traceback" not in "".join(server.lines)


def test_a_client_that_does_not_read_does_not_delay_the_end(tmp_path: Path) -> None:
    with (
        serving(tmp_path, *_SHORT, "--stall", "300") as server,
        server.client(server.add_key("slow")) as client,
    ):
        run_old(client, f"open('large', 'wb').write(bytes({64 << 20}))")
        with socket.create_connection(_address(server), timeout=60) as slow:
            path = f"/files/content/large?api-version={OLD}&identifier=main"
            slow.sendall(
                f"GET {path} HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: {client.headers['authorization']}\r\n\r\n".encode()
            )
            assert slow.recv(1)  # and nothing more
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait() == 0
    assert "Traceback" not in "".join(server.lines)


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


def _address(server: Server) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").split(":")
    return host, int(port)
