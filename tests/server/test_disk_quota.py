"""The bytes on disk that the sessions of one key may have together."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cellblock.server.owners import Quotas
from cellblock.server.sessions.disk_quota import disk_bytes
from tests.executors.session import session_image

from .mcp.mcp_client import using_door
from .rest.requesting import run
from .serving import OLD, Server, run_old, serving

MIB = 1 << 20
QUOTA = 12 * MIB
pytestmark = pytest.mark.depends_on_user


@pytest.fixture
def api(server: Server, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """Yield a client of the paths below /v1, with a key that has a quota and two sessions."""
    key = server.add_key(request.node.name, Quotas(disk_bytes=QUOTA))
    with server.client(key, "/v1") as client:
        for name in ("a", "b"):
            assert client.post("/sessions", json={"id": name}).status_code == 201
        yield client
        for each in client.get("/sessions").json()["sessions"]:
            client.delete(f"/sessions/{each['id']}")


def _write(size: int, name: str = "file") -> str:
    return f"open('{name}', 'wb').write(b'x' * {size}) and None"


def _refusal(answer: httpx.Response) -> str:
    assert answer.status_code == 507, answer.text
    assert answer.json()["error"]["code"] == "DiskQuotaExceeded"
    return answer.json()["error"]["message"]


def _run(client: httpx.Client, code: str = "1", session: str = "a") -> httpx.Response:
    return client.post(f"/sessions/{session}/runs", json={"code": code})


def test_a_run_that_writes_more_than_remains_is_ended(api: httpx.Client) -> None:
    run(api, "/sessions/b", _write(6 * MIB))
    for language, endless in (
        ("python", f"file = open('file', 'wb')\nwhile file.write(b'x' * {MIB}): pass"),
        ("bash", "cat /dev/zero > file"),
    ):
        result = run(api, "/sessions/a", endless, language=language)
        assert (result["outcome"], result["limit"]) == ("killed", "written_bytes")
        assert int(result["output"].split("the limit of ")[1].split()[0]) < 6 * MIB
        assert f"{QUOTA} bytes" in _refusal(_run(api))
        assert api.delete("/sessions/a/files/file").status_code == 204


def test_all_sessions_of_a_key_are_refused_until_files_are_deleted(api: httpx.Client) -> None:
    run(api, "/sessions/a", _write(8 * MIB))
    run(api, "/sessions/b", _write(9 * MIB))  # is ended by the limit
    for session in ("a", "b"):
        _refusal(_run(api, session=session))
    _refusal(api.post("/runs", json={"code": "1"}))
    assert api.delete("/sessions/a/files/file").status_code == 204
    assert run(api, "/sessions/b", "6 * 7")["stdout"] == "42\n"


@pytest.mark.slow
def test_the_end_of_a_session_gives_room_again(api: httpx.Client) -> None:
    run(api, "/sessions/a", "x = 1")
    run(api, "/sessions/b", _write(20 * MIB))
    _refusal(_run(api))
    assert api.delete("/sessions/b").status_code == 204
    assert run(api, "/sessions/a", "x")["stdout"] == "1\n"


def test_keys_do_not_count_the_files_of_others(server: Server, key: str, api: httpx.Client) -> None:
    with server.client(key, "/v1") as client:
        client.post("/sessions", json={"id": "other"})
        assert run(client, "/sessions/other", _write(20 * MIB))["outcome"] == "ok"
        assert run(api, "/sessions/a", "6 * 7")["stdout"] == "42\n"
        run(api, "/sessions/a", _write(20 * MIB))
        _refusal(_run(api))
        assert run(client, "/sessions/other", "6 * 7")["stdout"] == "42\n"
        client.delete("/sessions/other")


def test_an_upload_may_not_exceed_what_remains(api: httpx.Client) -> None:
    path = "/sessions/a/files/data"
    assert api.put(path, content=bytes(7 * MIB)).status_code == 200
    _refusal(api.put("/sessions/b/files/data", content=bytes(7 * MIB)))
    assert api.get("/sessions/b/files").json()["files"] == []
    assert api.delete(path).status_code == 204
    assert api.put("/sessions/b/files/data", content=bytes(7 * MIB)).status_code == 200


def test_copies_of_files_count(api: httpx.Client) -> None:
    run(api, "/sessions/a", _write(7 * MIB))
    for path in ("/sessions/a/checkpoints", "/sessions/a/fork"):
        refused = api.post(path, json={})
        assert refused.status_code == 409
        assert "would copy more than" in refused.json()["error"]["message"]
    run(api, "/sessions/a", _write(4 * MIB))
    assert api.post("/sessions/a/checkpoints", json={"name": "c"}).status_code == 201
    run(api, "/sessions/a", _write(5 * MIB, "more"))
    _refusal(_run(api))
    assert api.post("/sessions/a/restore", json={"checkpoint": "c"}).status_code == 200
    assert run(api, "/sessions/a", "6 * 7")["stdout"] == "42\n"


def test_files_of_the_home_folder_count_and_folders_cannot_hide_files(api: httpx.Client) -> None:
    code = f"import os; open(os.path.expanduser('~/file'), 'wb').write(b'x' * {QUOTA})"
    run(api, "/sessions/a", code)
    _refusal(_run(api))
    listed = api.get("/sessions/a/files", params={"folder": "~"}).json()["files"]
    assert "~/file" in [file["path"] for file in listed]
    assert api.delete("/sessions/a/files/~/file").status_code == 204
    assert run(api, "/sessions/a", "6 * 7")["stdout"] == "42\n"
    run(api, "/sessions/b", "import os\nfor _ in range(150): os.mkdir('d'); os.chdir('d')")
    assert "cannot be counted" in _refusal(_run(api, session="b"))


def test_each_door_refuses_in_its_own_way(server: Server) -> None:
    with server.client(server.add_key("full", Quotas(disk_bytes=QUOTA))) as client:
        run_old(client, _write(20 * MIB))
        _refusal(run_old(client, "1"))
        params = {"api-version": OLD, "identifier": "main"}
        upload = {"file": ("a", b"x" * 5000)}
        _refusal(client.post("/files/upload", params=params, files=upload))
        program = {"code": "print(1)", "language": "python"}
        _refusal(client.post("/run_code", json=program))
        client.delete("/session", params=params)
        assert client.post("/run_code", json=program).status_code == 200
        run_old(client, _write(20 * MIB))
        cell = {"generated_code": "1", "language": "ipython"}
        refused = client.post("/execute", json=cell, headers={"x-session-id": "n"})
        assert (refused.status_code, refused.json()["process_status"]) == (507, "error")
        assert "bytes on disk" in refused.json()["stderr"]
        assert "Traceback" not in "".join(server.lines)


def test_programs_of_trainers_have_what_remains(server: Server) -> None:
    with server.client(server.add_key("judge", Quotas(disk_bytes=2 * MIB))) as client:
        files = {"large": base64.b64encode(bytes(700_000)).decode()}
        body: dict[str, Any] = {"code": "print(1)", "language": "python", "files": files}
        assert client.post("/run_code", json=body).json()["status"] == "Success"
        body["code"] = _write(20 * MIB)
        assert client.post("/run_code", json=body).json()["status"] == "Failed"
        assert client.get("/v1/sessions").json()["sessions"] == []


def test_all_cases_of_a_program_have_together_what_remains(server: Server) -> None:
    code = f"import os; open(f'big{{len(os.listdir())}}', 'wb').write(os.urandom({MIB}))"
    with server.client(server.add_key("cases", Quotas(disk_bytes=5 * MIB // 2)), "/v1") as client:
        body = {"code": code, "tests": {"cases": [{"stdout": ""}] * 6}}
        found = client.post("/verdicts", json=body).json()
    assert (found["outcome"], found["limit"]) == ("limit", "written_bytes")
    assert 1 <= [each["outcome"] for each in found["cases"]].count("passed") <= 2


@pytest.mark.slow
def test_tools_of_mcp_say_that_the_quota_is_used_up(server: Server) -> None:
    key = server.add_key("tools", Quotas(disk_bytes=QUOTA))
    with using_door(server, key) as tools:
        tools.run(_write(20 * MIB))
        assert "bytes on disk" in tools.refusal("run_code", code="1")
        assert "bytes on disk" in tools.refusal("write_file", path="a", content="x" * 5000)
        tools.data("reset_session")
        assert tools.run("6 * 7")["stdout"] == "42\n"


@pytest.mark.slow
@pytest.mark.engine
def test_runs_in_containers_have_what_remains(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        image = session_image.use_session_image(patch)
        with (
            serving(tmp_path, "--executor", "docker", "--image", image) as server,
            server.client(server.add_key("c", Quotas(disk_bytes=QUOTA)), "/v1") as client,
        ):
            client.post("/sessions", json={"id": "a"})
            code = f"file = open('file', 'wb')\nwhile file.write(b'x' * {MIB}): pass"
            assert run(client, "/sessions/a", code)["limit"] == "written_bytes"
            _refusal(_run(client))
            client.delete("/sessions/a/files/file")
            assert run(client, "/sessions/a", "6 * 7")["stdout"] == "42\n"


def test_blocks_on_disk_count_and_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    empty = disk_bytes([tmp_path])
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(64 * MIB)
    assert disk_bytes([tmp_path]) < MIB
    (tmp_path / "file").write_bytes(bytes(MIB))
    (tmp_path / "link").hardlink_to(tmp_path / "file")
    (tmp_path / "symbolic").symlink_to("/usr")
    assert MIB <= disk_bytes([tmp_path, tmp_path]) - empty < 2 * MIB
    assert disk_bytes([tmp_path / "missing"]) == 0
