"""Limits and policy of one key: they hold in its sessions, through each door, and nowhere else."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest

from cellblock.limits import Limits
from cellblock.runtime.linux import process_tree
from cellblock.server.owners import Overrides
from tests.executors.session import session_image

from .conftest import Servers
from .mcp.mcp_client import using_door
from .rest.requesting import FOREVER, run, start, wait_for
from .serving import Server, run_old, serving

MIB = 1 << 20
READ_NAME = "import os; print(os.environ.get('KEY_NAME'))"
LARGE = f"len(b'x' * {300 * MIB})"
pytestmark = pytest.mark.depends_on_user


@pytest.fixture(scope="module")
def named_key(server: Server) -> str:
    """Return a key whose sessions know its name."""
    overrides = Overrides(policy={"environment": {"KEY_NAME": "own"}})
    return server.add_key("named", overrides=overrides)


@pytest.fixture
def other(server: Server, key: str) -> Iterator[httpx.Client]:
    """Yield a client with a key that has the server's limits and policy."""
    with server.client(key, "/v1") as client:
        yield client


def _by_azure(client: httpx.Client) -> str:
    return run_old(client, READ_NAME).json()["properties"]["stdout"]


def _by_rest(client: httpx.Client) -> str:
    return run(client, "/v1", READ_NAME)["stdout"]


def _by_sandbox_fusion(client: httpx.Client) -> str:
    body = {"code": READ_NAME, "language": "python"}
    return client.post("/run_code", json=body).json()["run_result"]["stdout"]


def _by_nemo_session(client: httpx.Client) -> str:
    body = {"generated_code": READ_NAME, "language": "ipython"}
    return client.post("/execute", json=body, headers={"x-session-id": "n"}).json()["stdout"]


def _by_nemo_program(client: httpx.Client) -> str:
    body = {"generated_code": READ_NAME, "language": "python"}
    return client.post("/execute", json=body).json()["stdout"]


def test_the_policy_of_a_key_holds_behind_each_door(
    server: Server, named_key: str, key: str
) -> None:
    with server.client(named_key) as own, server.client(key) as other:
        for ask in (_by_azure, _by_rest, _by_sandbox_fusion, _by_nemo_session, _by_nemo_program):
            assert (ask(own), ask(other)) == ("own\n", "None\n"), ask
    with using_door(server, named_key) as tools:
        assert tools.run(READ_NAME)["stdout"] == "own\n"


def test_forks_and_restored_sessions_keep_the_policy(server: Server, named_key: str) -> None:
    with server.client(named_key, "/v1") as client:
        client.post("/sessions", json={"id": "a"})
        client.post("/sessions/a/checkpoints", json={"name": "c"})
        assert client.post("/sessions/a/fork", json={"id": "b"}).status_code == 201
        assert client.post("/sessions/a/restore", json={"checkpoint": "c"}).status_code == 200
        assert client.post("/sessions/a/restart").status_code == 200
        for path in ("/sessions/a", "/sessions/b"):
            assert run(client, path, READ_NAME)["stdout"] == "own\n"


def test_limits_of_a_key_replace_those_of_the_server(server: Server, other: httpx.Client) -> None:
    overrides = Overrides(limits=Limits(memory_bytes=200 * MIB))
    with server.client(server.add_key("small", overrides=overrides), "/v1") as client:
        assert run(client, "", LARGE)["outcome"] == "out_of_memory"
    assert run(other, "", LARGE)["outcome"] == "ok"


@pytest.mark.slow
def test_a_limit_that_a_key_does_not_name_is_the_servers(tmp_path: Path) -> None:
    overrides = Overrides(limits=Limits(wall_seconds=1))
    with (
        serving(tmp_path, "--memory", "200M") as server,
        server.client(server.add_key("quick", overrides=overrides), "/v1") as client,
    ):
        assert run(client, "", LARGE)["limit"] == "memory_bytes"
        late = run(client, "", "import time; time.sleep(60)")
        assert (late["outcome"], late["limit"]) == ("timeout", "wall_seconds")


def test_a_key_may_use_the_network_that_others_may_not(server: Server, other: httpx.Client) -> None:
    code = f"import urllib.request as r; r.urlopen('{server.url}/health', timeout=5).status"
    overrides = Overrides(policy={"network": "host"})
    with server.client(server.add_key("online", overrides=overrides), "/v1") as client:
        assert run(client, "", code)["stdout"] == "200\n"
    assert "URLError" in run(other, "", code)["output"]


def test_a_key_can_have_folders_of_its_own(
    server: Server, other: httpx.Client, tmp_path: Path
) -> None:
    (tmp_path / "data.txt").write_text("content")
    overrides = Overrides(policy={"read_only": [[str(tmp_path), "/data"]]})
    code = "open('/data/data.txt').read()"
    with server.client(server.add_key("reader", overrides=overrides), "/v1") as client:
        assert run(client, "", code)["stdout"] == "'content'\n"
        assert run(client, "", "open('/data/data.txt', 'w')")["exit_code"] == 1
    assert run(other, "", code)["exit_code"] == 1


def test_a_folder_of_a_key_cannot_hide_that_of_its_sessions(server: Server, tmp_path: Path) -> None:
    for target in ("/mnt", "/mnt/data"):
        overrides = Overrides(policy={"read_only": [[str(tmp_path), target]]})
        key = server.add_key(f"hiding {target}", overrides=overrides)
        with server.client(key, "/v1") as client:
            refused = client.post("/runs", json={"code": "1"})
        assert refused.status_code >= 400
        assert "Use another target" in refused.json()["error"]["message"]


def test_a_missing_folder_of_a_key_costs_only_its_own_sessions(
    server: Server, other: httpx.Client, tmp_path: Path
) -> None:
    folder = tmp_path / "later"
    overrides = Overrides(policy={"read_only": [str(folder)]})
    with server.client(server.add_key("early", overrides=overrides), "/v1") as client:
        refused = client.post("/runs", json={"code": "1"})
        assert refused.status_code == 503
        assert str(folder) not in refused.text  # a path of this machine
        assert run(other, "", "6 * 7")["stdout"] == "42\n"
        folder.mkdir()
        assert run(client, "", "6 * 7")["stdout"] == "42\n"


@pytest.mark.slow
def test_a_key_whose_server_of_sessions_dies_takes_no_session_of_another_key_along(
    server: Server, other: httpx.Client
) -> None:
    """Not even of a key with the same limits and policy."""
    other.post("/sessions", json={"id": "kept"})
    run(other, "/sessions/kept", "x = 41")
    with server.client(server.add_key("unlucky"), "/v1") as client:
        client.post("/sessions", json={"id": "lost"})
        run(client, "/sessions/lost", "open('/proc/self/comm', 'w').write('unlucky')")
        before = _sessions_lost(server, client)
        os.kill(_server_above(server, "unlucky"), signal.SIGKILL)
        answer = client.post("/sessions/lost/runs", json={"code": "1"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        assert _sessions_lost(server, client) == before + 1
    assert run(other, "/sessions/kept", "x + 1")["stdout"] == "42\n"


def test_the_programs_of_each_key_have_a_server_of_their_own(server: Server) -> None:
    """Also if the keys have the same limits and policy."""
    servers = list[int]()
    for name in ("first", "second"):
        with server.client(server.add_key(name), "/v1") as client:
            path = start(client, "", f"open('/proc/self/comm', 'w').write({name!r})\n{FOREVER}")
            servers.append(wait_for(lambda name=name: _find_server(server, name)))
            client.post(f"{path}/cancel")
    assert len(set(servers)) == 2


def _find_server(server: Server, name: str) -> int:
    with contextlib.suppress(StopIteration):
        return _server_above(server, name)
    return 0


@pytest.mark.slow
def test_the_server_of_a_key_ends_after_its_last_session(servers: Servers) -> None:
    server = servers("--idle", "1")
    with server.client(server.add_key("busy"), "/v1") as client:
        client.post("/sessions", json={"id": "a"})
        run(client, "/sessions/a", "open('/proc/self/comm', 'w').write('busy')")
        with _open_pidfd(_server_above(server, "busy")) as pidfd:
            assert select.select([pidfd], [], [], 30)[0], "the server of the key does not end"
        assert run(client, "", "6 * 7")["stdout"] == "42\n"


def _sessions_lost(server: Server, client: httpx.Client) -> float:
    text = client.get(f"{server.url}/metrics").text
    (line,) = (one for one in text.splitlines() if one.startswith("cellblock_sessions_lost_total "))
    return float(line.split()[1])


def _server_above(server: Server, name: str) -> int:
    """Return the process ID of the server of sessions that the process `name` is below."""
    pid = next(pid for pid in process_tree.descendants(server.process.pid) if _name(pid) == name)
    while (parent := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])) != (
        server.process.pid
    ):
        pid = parent
    return pid


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return ""


@contextlib.contextmanager
def _open_pidfd(pid: int) -> Generator[int]:
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def test_a_server_of_sessions_that_was_killed_is_replaced(server: Server, named_key: str) -> None:
    with server.client(named_key, "/v1") as client:
        assert run(client, "", READ_NAME)["stdout"] == "own\n"
        for pid in _children(server):
            os.kill(pid, signal.SIGKILL)
        answers = [client.post("/runs", json={"code": READ_NAME}) for _ in range(3)]
        assert answers[-1].json()["result"]["stdout"] == "own\n"


def _children(server: Server) -> list[int]:
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


@pytest.mark.slow
@pytest.mark.engine
def test_keys_on_a_server_with_containers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Overrides(limits=Limits(memory_bytes=200 * MIB))
    variable = Overrides(policy={"environment": {"A": "1"}})
    image = session_image.use_session_image(monkeypatch)
    with serving(tmp_path, "--executor", "docker", "--image", image) as server:
        with server.client(server.add_key("variable", overrides=variable), "/v1") as client:
            refused = client.post("/sessions")
            assert refused.status_code == 403
            assert refused.json()["error"]["code"] == "PolicyNotSupported"
            assert "environment" in refused.json()["error"]["message"]
        with server.client(server.add_key("small", overrides=small), "/v1") as client:
            assert run(client, "", LARGE)["outcome"] == "out_of_memory"
