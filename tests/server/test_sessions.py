"""The life of sessions and runs: expiry, queues, clients that leave, signals, crashes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from cellblock.server.owners import Quotas

from ..command_server import run_command
from .rest.requesting import FOREVER, wait_for
from .serving import OLD, Server, leaving_post, run_old, serving

_BEGIN = "open('begun', 'w').close()\n"
_WAIT_FOR_FILE = (
    f"{_BEGIN}import os, time\nwhile not os.path.exists('/mnt/data/go'): time.sleep(0.02)"
)


def _has_begun(client: httpx.Client, identifier: str) -> bool:
    params = {"api-version": OLD, "identifier": identifier}
    return client.get("/files/content/begun", params=params).status_code == 200


def test_an_unused_session_ends(tmp_path: Path) -> None:
    with serving(tmp_path, "--idle", "1") as server, server.client(server.add_key("a")) as client:
        assert run_old(client, "kept = 1").json()["properties"]["status"] == "Success"
        params = {"api-version": OLD, "identifier": "main"}
        wait_for(lambda: client.get("/session", params=params).status_code == 404)
        assert run_old(client, "kept").json()["properties"]["status"] == "Failure"


def test_the_server_has_a_number_of_sessions(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--max-sessions", "1") as server,
        server.client(server.add_key("a")) as one,
        server.client(server.add_key("b")) as two,
    ):
        assert run_old(one, "1").status_code == 200
        assert run_old(two, "1").status_code == 429


def test_a_full_queue_answers_429(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--max-queued", "1") as server,
        server.client(server.add_key("a", Quotas(running=1))) as client,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(run_old, client, _WAIT_FOR_FILE, "first")
        wait_for(lambda: _has_begun(client, "first"))
        second = pool.submit(run_old, client, "2", "second")
        wait_for(lambda: "cellblock_runs_waiting 1.0" in client.get("/metrics").text)
        third = run_old(client, "3", "third")
        assert third.status_code == 429
        assert int(third.headers["retry-after"]) >= 1
        params = {"api-version": OLD, "identifier": "first"}
        assert client.post("/files/upload", params=params, files={"file": ("go", b"")}).is_success
        assert first.result().status_code == second.result().status_code == 200


def test_a_client_that_leaves_ends_its_run(server: Server, client: httpx.Client) -> None:
    query = f"api-version={OLD}&identifier=leaver"
    body = {"properties": {"codeInputType": "inline", "executionType": "synchronous"}}
    body["properties"]["code"] = f"{_BEGIN}{FOREVER}"
    with leaving_post(server, client, f"/code/execute?{query}", body):
        wait_for(lambda: _has_begun(client, "leaver"))
    # The session runs one code after the other.
    assert run_old(client, "6 * 7", "leaver").json()["properties"]["result"] == 42


def test_sigterm_lets_current_runs_end(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client(server.add_key("a")) as client:
        with ThreadPoolExecutor() as pool:
            current = pool.submit(run_old, client, f"{_WAIT_FOR_FILE}\n'done'")
            wait_for(lambda: _has_begun(client, "main"))
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: httpx.get(f"{server.url}/ready").status_code == 503)
            params = {"api-version": OLD, "identifier": "main"}
            upload = {"file": ("go", b"")}
            assert client.post("/files/upload", params=params, files=upload).is_success
            assert current.result().json()["properties"]["result"] == "done"
        assert server.process.wait() == 0


def test_a_killed_server_leaves_no_folder_and_no_process(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process, url, key = _start_server(tmp_path, temporary)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
        run_old(
            client, f"import subprocess\nsubprocess.Popen(['sleep', '100', '{mark}'])\n'{mark}'"
        )
        run_old(client, f"open('{mark}', 'w').close()")
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()
    wait_for(lambda: not list(temporary.glob("cellblock-work-*")))
    wait_for(lambda: not _has_process(mark))


def _has_process(mark: str) -> bool:
    done = subprocess.run(["ps", "ax"], capture_output=True, text=True, check=True)
    return mark in done.stdout


def _start_server(folder: Path, temporary: Path) -> tuple[subprocess.Popen[str], str, str]:
    environment = {
        **os.environ,
        "CELLBLOCK_DATABASE": f"sqlite:///{folder}/server.db",
        "TMPDIR": str(temporary),
    }
    command = [sys.executable, "-m", "cellblock"]
    added = subprocess.run(
        [*command, "keys", "add", "a"], env=environment, capture_output=True, text=True, check=True
    )
    process = subprocess.Popen(
        [*command, "serve", "--port", "0"], env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    url = next(line for line in process.stderr if "serving on" in line).split()[-1]
    return process, url, added.stdout.strip()


def test_the_server_of_sessions_is_replaced_when_it_is_killed(
    server: Server, client: httpx.Client
) -> None:
    run_old(client, "kept = 1", "before")
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        for pid in (task / "children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
    assert children.exists()
    answers = [run_old(client, "6 * 7", "before") for _ in range(3)]
    assert answers[-1].json()["properties"]["result"] == 42


def test_half_a_request_does_not_stop_others(server: Server, client: httpx.Client) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as half:
        half.sendall(b"POST /code/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert run_old(client, "6 * 7").json()["properties"]["result"] == 42


def test_without_keys_only_loopback_and_no_foreign_pages(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-auth") as server, server.client(None) as client:
        assert run_old(client, "6 * 7").json()["properties"]["result"] == 42
        client.headers["origin"] = "https://evil.example"
        assert run_old(client, "6 * 7").status_code == 403
        del client.headers["origin"]
        client.headers["host"] = "evil.example"
        assert run_old(client, "6 * 7").status_code == 403
    done = run_command("serve", "--no-auth", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "loopback" in done.stderr
    assert "Leave out --no-auth, or use --host 127.0.0.1" in done.stderr
