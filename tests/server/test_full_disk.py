"""A server whose temporary folder and database are on a full disk: clear errors, and a way back."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cellblock.runtime.linux import syscalls
from cellblock.server.owners import Quotas

from .mcp.mcp_client import using_door
from .rest.requesting import run, wait_for
from .serving import NEW, OLD, Server, run_old, serving

KIB, MIB = 1 << 10, 1 << 20
DISK_BYTES = 32 * MIB
pytestmark = [pytest.mark.timeout(120), pytest.mark.depends_on_user]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield a folder on a small filesystem."""
    folder = tmp_path_factory.mktemp("disk")
    try:
        syscalls.mount("tmpfs", str(folder), "tmpfs", 0, f"size={DISK_BYTES}")
    except PermissionError:
        pytest.skip("only root can mount a small filesystem")
    try:
        yield folder
    finally:
        syscalls.unmount(str(folder), syscalls.MNT_DETACH)


@pytest.fixture(scope="module")
def server(disk: Path) -> Iterator[Server]:
    """Yield a server whose files are all on the small disk. Nothing is left when it has ended."""
    temporary = disk / "temporary"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        with serving(disk) as one:
            yield one
            fill(disk)
    assert list(temporary.iterdir()) == []


@pytest.fixture
def api(api: httpx.Client) -> Iterator[httpx.Client]:
    """Yield a client of the paths below /v1, whose sessions end with the test."""
    yield api
    for each in api.get("/sessions").json()["sessions"]:
        assert api.delete(f"/sessions/{each['id']}").status_code == 204


def fill(disk: Path) -> Path:
    """Fill the disk, and return the file that does."""
    with (disk / "filler").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4 * KIB))
    return disk / "filler"


@contextlib.contextmanager
def full(disk: Path) -> Generator[None]:
    """Keep the disk full during the context."""
    filler = fill(disk)
    try:
        yield
    finally:
        filler.unlink()


def start_session(api: httpx.Client) -> str:
    """Return the path of a new session."""
    made = api.post("/sessions")
    assert made.status_code == 201, made.text
    return f"/sessions/{made.json()['id']}"


def assert_no_room(answer: httpx.Response) -> None:
    """Check for the error of a full disk."""
    assert answer.status_code == 507, answer.text
    assert answer.json()["error"]["code"] == "InsufficientStorage"
    assert "No space left" in answer.json()["error"]["message"]


def upload_until_full(upload: Callable[[str, int], httpx.Response]) -> list[str]:
    """Upload files of several sizes until none fits. Return the names."""
    names = list[str]()
    for size in (6 * MIB, 12 * MIB, 512 * KIB, 16 * KIB):
        for _ in range(DISK_BYTES // size):
            name = f"file{len(names)}"
            answer = upload(name, size)
            if answer.status_code != 200:
                assert_no_room(answer)
                break
            names.append(name)
        else:
            raise AssertionError("the disk was never full")
    assert len(names) > 2
    return names


def test_uploads_are_refused_and_deletion_gives_room(api: httpx.Client) -> None:
    path, other = start_session(api), start_session(api)

    def upload(name: str, size: int) -> httpx.Response:
        return api.put(f"{path}/files/{name}", content=bytes(size))

    names = upload_until_full(upload)
    listed = [each["path"] for each in api.get(f"{path}/files").json()["files"]]
    assert listed == sorted(names)  # no partial file
    assert run(api, other, "6 * 7")["stdout"] == "42\n"
    write = "with open('more', 'wb') as file: file.write(bytes(1 << 20))"
    failed = run(api, path, write)
    assert (failed["exit_code"], failed["outcome"]) == (1, "error")
    assert "No space left on device" in failed["stderr"]
    assert api.delete(f"{path}/files/{names[0]}").status_code == 204
    assert upload("again", MIB).status_code == 200
    assert run(api, path, write)["exit_code"] == 0


@pytest.mark.parametrize(
    ("version", "end"),
    [(OLD, "files/upload"), pytest.param(NEW, "files", marks=pytest.mark.exhaustive)],
)
def test_azure_uploads_are_refused(server: Server, key: str, version: str, end: str) -> None:
    query = {"api-version": version, "identifier": "azure"}
    with server.client(key, "/pools/p") as client, server.client(key, "/v1") as api:

        def upload(name: str, size: int) -> httpx.Response:
            return client.post(f"/{end}", params=query, files={"file": (name, bytes(size))})

        upload_until_full(upload)
        done = run_old(client, "6 * 7", "azure").json()["properties"]
        assert (done["status"], done["result"]) == ("Success", 42)
        assert api.delete("/sessions/azure").status_code == 204
        assert upload("again", MIB).status_code == 200
        assert api.delete("/sessions/azure").status_code == 204


def test_programs_of_trainers_get_the_error_and_no_verdict(
    server: Server, key: str, disk: Path
) -> None:
    with server.client(key) as client:

        def judge(size: int) -> httpx.Response:
            files = {"data": base64.b64encode(bytes(size)).decode()}
            code = "print(len(open('data', 'rb').read()))"
            body = {"code": code, "language": "python", "files": files}
            return client.post("/run_code", json=body)

        with full(disk):
            assert_no_room(judge(10))
            (disk / "filler").write_bytes(bytes((disk / "filler").stat().st_size - MIB))
            assert_no_room(judge(3 * MIB))
        assert judge(3 * MIB).json()["run_result"]["stdout"] == f"{3 * MIB}\n"


def test_the_log_has_one_line_and_no_file_name(
    server: Server, api: httpx.Client, disk: Path
) -> None:
    path = start_session(api)
    with full(disk):
        answer = api.put(f"{path}/files/private-name", content=bytes(2 * MIB))
        assert_no_room(answer)
        assert_no_room(api.post("/sessions"))  # in the database
    request = answer.headers["x-request-id"]
    wait_for(lambda: len(_logged(server, request)) == 2)
    assert _logged(server, request)[0]["message"] == "request failed: No space left on device"
    assert not [line for line in server.lines if "private-name" in line or "Traceback" in line]


def _logged(server: Server, request_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.lines if f'"request_id": "{request_id}"' in line]


def test_sessions_can_be_used_but_not_made_or_copied(api: httpx.Client, disk: Path) -> None:
    path = start_session(api)
    data = "bytes(1 << 20)"
    run(api, path, f"x = 1; open('data', 'wb').write({data}) and None")
    assert api.post(f"{path}/checkpoints", json={"name": "a"}).status_code == 201
    run(api, path, "x = 2; open('data', 'w').close()")
    run(api, "", "1")
    with full(disk):
        assert_no_room(api.post("/sessions"))
        assert_no_room(api.post(f"{path}/fork"))
        assert_no_room(api.post("/runs", json={"code": "6 * 7"}))  # its file; a session needs none
        assert_no_room(api.post(f"{path}/restore", json={"checkpoint": "a"}))
        assert run(api, path, "x")["stdout"] == "1\n"  # the variables are restored, not all files
        large = run(api, path, "print('y' * 1_000_000)")
        assert len(large["stdout"]) == 1_000_001
    assert api.post(f"{path}/restore", json={"checkpoint": "a"}).status_code == 200
    assert run(api, path, f"x, open('data', 'rb').read() == {data}")["stdout"] == "(1, True)\n"
    assert api.post(f"{path}/fork").status_code == 201


def test_runs_of_a_key_with_a_quota_are_answered_and_counted(server: Server, disk: Path) -> None:
    key = server.add_key("limited", Quotas(cpu_seconds_a_day=0.3))
    with server.client(key, "/v1") as api:
        path = start_session(api)
        with full(disk):
            work = "import time\nwhile time.process_time() < 0.2: pass\n6 * 7"
            assert run(api, path, work)["stdout"] == "42\n"
        run(api, path, "while time.process_time() < 0.4: pass")
        assert api.post(f"{path}/runs", json={"code": "1"}).status_code == 429
        api.delete(path)


def test_mcp_clients_are_told(server: Server, key: str, disk: Path) -> None:
    file: dict[str, Any] = {"path": "file", "content": "x" * MIB}
    with using_door(server, key) as tools:
        tools.data("write_file", path="first", content="x")
        with full(disk):
            assert "No space left" in tools.refusal("write_file", **file)
            assert "No space left" in tools.refusal("run_code", code="1", session_id="new")
            assert tools.run("6 * 7")["stdout"] == "42\n"
        tools.data("write_file", **file)
        tools.data("reset_session")
