"""`cellblock serve --executor docker`: each session is a container of a real engine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest

from cellblock.containers.orphans import OWNER_LABEL
from cellblock.executors.command_line.docker import IMAGE
from tests.cli.cli_process import run_command
from tests.containers import docker_engine
from tests.executors.session import session_image

from .rest.requesting import FOREVER, run, start, wait_for
from .serving import Server, run_old, serving

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        yield session_image.use_session_image(patch)


@pytest.fixture
def temp_dir(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the empty folder for temporary files of servers that the test starts."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture(scope="module")
def server(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--executor", "docker", "--image", image, "--timeout", "10", "--memory", "256M")
    with serving(tmp_path_factory.mktemp("server"), *options) as one:
        yield one


@pytest.fixture
def session(api: httpx.Client) -> Iterator[str]:
    """Yield the path of a new session."""
    path = _start_session(api)
    yield path
    api.delete(path)


def containers(server: Server) -> list[str]:
    """Return the IDs of the containers that a server process has made."""
    rows = docker_engine.shared_engine().docker(
        *("ps", "--all", "--filter", f"label={OWNER_LABEL}"),
        *("--format", f'{{{{.ID}}}} {{{{.Label "{OWNER_LABEL}"}}}}'),
    )
    found = [row.partition(" ") for row in rows.splitlines()]
    return [number for number, _, owner in found if _owner_pid(owner) == server.process.pid]


def _owner_pid(label: str) -> int | None:
    try:
        return json.loads(label)["pid"]
    except ValueError:  # tests of other executors make containers with invalid labels
        return None


@pytest.mark.slow
def test_programs_run_in_a_container_of_their_own(api: httpx.Client, server: Server) -> None:
    code = "print(input(), open('in').read(), __name__)\nopen('/mnt/data/out', 'w').write('made')"
    body = {"language": "python", "stdin": "line", "memory_limit_MB": 64}
    files = {"files": {"in": "ZmlsZQ=="}, "fetch_files": ["out"]}
    of_sessions = set(containers(server))  # of earlier tests
    done = api.post(f"{server.url}/run_code", json={"code": code, **body, **files}).json()
    assert (done["status"], done["run_result"]["stdout"]) == ("Success", "line file __main__\n")
    assert done["files"] == {"out": "bWFkZQ=="}
    done = api.post(f"{server.url}/run_code", json={"code": "bytearray(1 << 27)", **body}).json()
    assert "MemoryError" in done["run_result"]["stderr"]
    late = {"code": f"print('up', flush=True)\n{FOREVER}", **body, "run_timeout": 1}
    done = api.post(f"{server.url}/run_code", json=late).json()["run_result"]
    assert (done["status"], done["stdout"]) == ("TimeLimitExceeded", "up\nbegun\n")
    assert run(api, "", "import os; os.getcwd(), os.path.exists('out')")["stdout"] == (
        "('/mnt/data', False)\n"
    )
    wait_for(lambda: set(containers(server)) <= of_sessions)


def test_a_session_keeps_variables_and_files(api: httpx.Client, session: str) -> None:
    run(api, session, "x = 41; open('/mnt/data/made', 'w').write('made') and None")
    assert run(api, session, "x + 1")["stdout"] == "42\n"
    assert run(api, session, "import os; print(os.getcwd())")["stdout"] == "/mnt/data\n"
    assert run(api, session, "pwd", language="bash")["stdout"] == "/mnt/data\n"
    result = run(api, session, "cat made; ls -la /mnt/data >&2", language="bash")
    assert (result["stdout"], result["exit_code"]) == ("made", 0), result
    assert [each["path"] for each in api.get(f"{session}/files").json()["files"]] == ["made"]
    assert api.get(f"{session}/files/made").content == b"made"
    other = _start_session(api)  # which has a container of its own
    for path in (session, other):
        run(api, path, f"open('/tmp/f', 'a').write({path!r}); x = {path!r}")
    for path in (session, other):
        assert run(api, path, "print(open('/tmp/f').read(), x)")["stdout"] == f"{path} {path}\n"
    assert api.delete(other).status_code == 204


@pytest.mark.slow
def test_azure_clients_upload_run_and_download(server: Server, key: str) -> None:
    with server.client(key, "/pools/p") as client:
        query = {"api-version": "2024-02-02-preview", "identifier": "azure"}
        upload = {"file": ("a.txt", b"content")}
        sent = client.post("/files/upload", params=query, files=upload)
        assert sent.status_code == 200, sent.text
        code = "text = open('/mnt/data/a.txt').read(); open('a.txt', 'a').write('!'); text"
        done = run_old(client, code, "azure").json()["properties"]
        assert (done["status"], done["result"]) == ("Success", "content"), done
        assert client.get("/files/content/a.txt", params=query).content == b"content!"
        [listed] = client.get("/files", params=query).json()["value"]
        assert listed["properties"]["filename"] == "a.txt"


@pytest.mark.slow
def test_limits_and_cancels_end_a_run_and_keep_the_session(api: httpx.Client, session: str) -> None:
    run(api, session, "x = 1")
    late = run(api, session, "print('up', flush=True)\nwhile True: pass", timeout_seconds=1)
    assert (late["outcome"], late["stdout"]) == ("timeout", "up\n")
    large = run(api, session, "data = b'x' * (1 << 30)")
    assert large["outcome"] == "out_of_memory", large
    assert run(api, session, "x")["stdout"] == "1\n"
    path = start(api, session, FOREVER)
    wait_for(lambda: api.get(path).json()["status"] == "running")
    assert api.post(f"{path}/cancel").json()["result"]["outcome"] == "cancelled"


@pytest.mark.slow
def test_checkpoints_are_restored_and_forks_are_refused(api: httpx.Client, session: str) -> None:
    run(api, session, "x = 1; open('/mnt/data/f', 'w').write('one') and None")
    assert api.post(f"{session}/checkpoints", json={"name": "a"}).status_code == 201
    run(api, session, "x = 2; open('/mnt/data/f', 'w').write('two') and None")
    assert api.post(f"{session}/restore", json={"checkpoint": "a"}).status_code == 200
    assert run(api, session, "print(x, open('/mnt/data/f').read())")["stdout"] == "1 one\n"
    refused = api.post(f"{session}/fork")
    assert refused.status_code == 409, refused.text
    assert "--executor docker" in refused.json()["error"]["message"]


@pytest.mark.slow
def test_the_end_of_a_session_and_sigterm_remove_containers_and_folders(
    image: str, temp_dir: Path, tmp_path: Path
) -> None:
    with serving(tmp_path, "--executor", "docker", "--image", image) as server:
        with server.client(server.add_key("k"), "/v1") as api:
            empty = set(temp_dir.rglob("*"))
            path = _start_session(api)
            run(api, path, "open('f', 'w').close()")
            assert len(containers(server)) == 1
            assert set(temp_dir.rglob("*")) > empty
            assert api.delete(path).status_code == 204
            assert containers(server) == []
            assert set(temp_dir.rglob("*")) == empty
            run(api, _start_session(api), "x = 1")
            start(api, _start_session(api), FOREVER)
        assert len(containers(server)) == 2
    assert containers(server) == []
    assert list(temp_dir.iterdir()) == []


@pytest.mark.slow
def test_a_killed_server_leaves_nothing(image: str, temp_dir: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "--executor", "docker", "--image", image) as server:
        with server.client(server.add_key("k"), "/v1") as api:
            start(api, _start_session(api), FOREVER)
        assert len(containers(server)) == 1
        server.kill()
    wait_for(lambda: containers(server) == [])
    wait_for(lambda: list(temp_dir.iterdir()) == [])


@pytest.mark.slow
def test_an_image_without_ipython_ends_the_command_with_the_remedy(
    image: str, temp_dir: Path
) -> None:
    unusable = docker_engine.shared_engine().test_image("python")
    options = ("--port", "0", "--no-auth", "--executor", "docker", "--image", unusable)
    done = run_command("serve", *options)
    assert done.returncode == 3
    assert "pip install ipython" in done.stderr
    assert list(temp_dir.iterdir()) == []


@pytest.mark.slow
@pytest.mark.network
def test_the_default_image_gets_ipython(image: str, tmp_path: Path) -> None:
    with default_image(), serving(tmp_path, "--executor", "docker") as server:
        with server.client(server.add_key("k"), "/v1") as api:
            assert run(api, "", "1 + 1")["stdout"] == "2\n"


@contextlib.contextmanager
def default_image() -> Generator[None]:
    """Give a test image the name of the default image during the context."""
    engine = docker_engine.shared_engine()
    with engine.locked("default-image"):  # another run of this test would remove the name
        if engine.docker("images", "--quiet", IMAGE):
            yield
            return
        engine.docker("tag", engine.test_image("python"), IMAGE)
        try:
            yield
        finally:
            engine.docker("rmi", IMAGE)


def _start_session(api: httpx.Client) -> str:
    """Return the path of a new session."""
    made = api.post("/sessions")
    assert made.status_code == 201, made.text
    return f"/sessions/{made.json()['id']}"
