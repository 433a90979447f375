"""`cellblock serve --ray` on a real cluster of a head and two nodes on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from cellblock.server.owners import Overrides, Quotas
from tests.executors.session.live_session import skip_without_sandbox
from tests.frameworks import framework_python, import_path
from tests.server.rest.requesting import run, start, wait_for
from tests.server.serving import Server, serving

RAY = ("ray==2.60.0",)
SCENARIO = Path(__file__).parent / "scenarios" / "ray_cluster.py"
BIG = os.urandom(9 << 20)  # some pieces
pytestmark = [
    pytest.mark.pythons,
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]


@dataclass
class Cluster:
    """The scenario, and a server on its nodes."""

    process: subprocess.Popen[str]
    server: Server

    def ask(self, line: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return read_answer(self.process)


def read_answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.wait()
    return json.loads(line)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    skip_without_sandbox()
    folder, python = tmp_path_factory.mktemp("cluster"), framework_python(*RAY)
    path = import_path(folder)
    process = subprocess.Popen(
        [python, SCENARIO],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        address, *_ = read_answer(process)
        [packages] = python.parents[1].glob("lib/python3*/site-packages")
        with contextlib.ExitStack() as stack:
            with pytest.MonkeyPatch.context() as patch:  # other commands have no Ray
                patch.setenv("PYTHONPATH", os.pathsep.join([path, str(packages)]))
                served = serving(folder, "--ray", address, "--idle", "600", is_forked=False)
                server = stack.enter_context(served)
            yield Cluster(process, server)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def client(cluster: Cluster, request: pytest.FixtureRequest) -> Generator[httpx.Client]:
    key = cluster.server.add_key(request.node.name)
    with cluster.server.client(key, "/v1") as client:
        client.timeout = httpx.Timeout(300)
        yield client
        for each in client.get("/sessions").json()["sessions"]:
            client.delete(f"/sessions/{each['id']}")


def make(client: httpx.Client, name: str) -> str:
    """Make a session, and return the ID of its node."""
    answer = client.post("/sessions", json={"id": name})
    assert answer.status_code == 201, answer.text
    node: str = answer.json()["node"]
    return node


def test_a_session_on_a_node_can_do_all_that_one_on_this_machine_can(client: httpx.Client) -> None:
    node = make(client, "one")
    assert run(client, "/sessions/one", "x = 6 * 7; x")["stdout"] == "42\n"
    client.put("/sessions/one/files/data/big", content=BIG).raise_for_status()
    assert client.get("/sessions/one/files/data/big").content == BIG
    part = client.get("/sessions/one/files/data/big", headers={"range": "bytes=5-8"})
    assert part.content == BIG[5:9]
    assert client.put("/sessions/one/files/empty", content=b"").status_code == 200
    listed = client.get("/sessions/one/files", params={"recursive": "true"}).json()["files"]
    assert [each["path"] for each in listed] == ["data", "data/big", "empty"]
    missing = client.get("/sessions/one/files/none")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "FileNotFound")

    client.post("/sessions/one/checkpoints", json={"name": "before"}).raise_for_status()
    run(client, "/sessions/one", "x = 1; import os; os.remove('data/big')")
    copied = client.post("/sessions/one/fork", json={"id": "copy", "checkpoint": "before"})
    assert copied.json()["node"] == node, copied.text
    client.post("/sessions/one/restore", json={"checkpoint": "before"}).raise_for_status()
    for name in ("one", "copy"):
        assert run(client, f"/sessions/{name}", "x, os")["stderr"].endswith("'os' is not defined\n")
        assert run(client, f"/sessions/{name}", "x")["stdout"] == "42\n"
        assert client.get(f"/sessions/{name}/files/data/big").content == BIG
    found = client.get("/sessions/one/checkpoints").json()["checkpoints"]
    assert [each["name"] for each in found] == ["before"]
    command = client.post("/sessions/one/commands", json={"command": "cat empty; echo done"})
    assert command.json()["stdout"] == "done\n"
    client.post("/sessions/one/restart").raise_for_status()
    assert "x" in run(client, "/sessions/one", "x")["stderr"]


def test_a_run_on_a_node_streams_and_can_be_cancelled(client: httpx.Client) -> None:
    make(client, "one")
    code = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(1)"
    path = start(client, "/sessions/one", code)
    with client.stream("GET", f"{path}/events") as answer:
        for line in answer.iter_lines():
            if "ready" in line:
                break
    client.post(f"{path}/cancel").raise_for_status()
    wait_for(lambda: client.get(path).json()["status"] == "ended")
    assert client.get(path).json()["result"]["outcome"] == "cancelled"
    assert run(client, "/sessions/one", "1")["stdout"] == "1\n"


def test_a_run_ends_with_its_session(client: httpx.Client) -> None:
    make(client, "one")
    path = start(client, "/sessions/one", "import time\nwhile True: time.sleep(1)")
    wait_for(lambda: client.get(path).json()["status"] == "running")
    assert client.delete("/sessions/one").status_code == 204
    wait_for(lambda: client.get(path).json()["status"] in ("ended", "failed"))
    assert client.get("/sessions/one").status_code == 404
    make(client, "one")
    assert "time" in run(client, "/sessions/one", "time")["stderr"]


def test_fresh_programs_run_on_nodes(client: httpx.Client, cluster: Cluster) -> None:
    assert run(client, "", "print('fresh')")["stdout"] == "fresh\n"
    # As long as it may run, its client waits: on a busy machine a placement takes half a minute.
    body = {"code": "print(input())", "language": "python", "stdin": "given", "run_timeout": 200}
    answer = client.post(f"{cluster.server.url}/run_code", json=body).json()
    assert answer["run_result"]["stdout"] == "given\n", answer


def test_the_files_of_a_key_on_all_nodes_count_for_its_quota(cluster: Cluster) -> None:
    key = cluster.server.add_key("small", Quotas(disk_bytes=1 << 20))
    with cluster.server.client(key, "/v1") as client:
        client.timeout = httpx.Timeout(300)
        node = make(client, "a")
        for number in range(40):  # Ray chooses the node, and leaves a full one
            other = f"b{number}"
            if make(client, other) != node:
                break
        else:
            pytest.fail("all sessions are on one node")
        half = b"x" * (600 << 10)
        assert client.put("/sessions/a/files/half", content=half).status_code == 200
        refused = client.put(f"/sessions/{other}/files/half", content=half)
        assert refused.json()["error"]["code"] == "DiskQuotaExceeded"
        assert client.get(f"/sessions/{other}/files").json() == {"files": []}
        for name in ("a", *(f"b{each}" for each in range(number + 1))):
            client.delete(f"/sessions/{name}")


def test_code_gets_no_network_if_the_cluster_accepts_everybody(cluster: Cluster) -> None:
    key = cluster.server.add_key("reaching", overrides=Overrides(policy={"network": "host"}))
    with cluster.server.client(key, "/v1") as client:
        answer = client.post("/sessions", json={"id": "one"})
        assert answer.status_code == 403
        assert "RAY_AUTH_MODE=token" in answer.json()["error"]["message"]


def test_a_cluster_without_room_refuses_a_session(cluster: Cluster) -> None:
    assert cluster.ask("full") == (
        "No node of the cluster has 3 CPU free. End a session, or send the request again later."
    )


def test_a_drained_node_keeps_its_sessions_and_a_lost_one_loses_them(
    client: httpx.Client, cluster: Cluster
) -> None:
    """New sessions are on other nodes in both cases."""
    nodes = {name: make(client, name) for name in ("a", "b", "c", "d")}
    assert len(set(nodes.values())) == 2
    drained = nodes["a"]
    assert cluster.ask(f"drain {drained}") == 0
    on_lost = [name for name, node in nodes.items() if node != drained]
    for name in ("e", "f", "g"):
        nodes[name] = make(client, name)
        assert nodes[name] != drained
    kept = [name for name, node in nodes.items() if node == drained]
    for name in kept:
        run(client, f"/sessions/{name}", f"x = {name!r}")

    path = start(client, f"/sessions/{on_lost[0]}", "import time; time.sleep(600)")
    wait_for(lambda: client.get(path).json()["status"] == "running")
    cluster.ask(f"kill {nodes[on_lost[0]]}")
    wait_for(lambda: client.get(path).json()["status"] == "failed")

    def is_known_as_lost() -> bool:
        """Return True once Ray knows that the node does not only answer late."""
        answer = client.post(f"/sessions/{on_lost[1]}/runs", json={"code": "1"})
        error = answer.json()["error"]
        assert answer.status_code == 503, answer.text
        assert error["code"] in ("BackendUnavailable", "SessionLost"), answer.text
        return f"The session '{on_lost[1]}' was lost, with its variables" in error["message"]

    wait_for(is_known_as_lost)
    assert client.get(f"/sessions/{on_lost[1]}").status_code == 404
    for name in kept:
        assert run(client, f"/sessions/{name}", "x")["stdout"] == f"{name!r}\n"
    added = cluster.ask("add")
    assert make(client, "new") == added
    assert run(client, "/sessions/new", "1 + 1")["stdout"] == "2\n"
    cluster.ask("add")  # other tests need two nodes
