"""Sessions, checkpoints and forks."""

from __future__ import annotations

import httpx
import pytest

from .requesting import FOREVER, run, start, wait_for


def test_a_session_is_created_once_for_an_identifier(api: httpx.Client) -> None:
    first = api.post("/sessions", json={"id": "mine"})
    assert (first.status_code, first.json()["id"]) == (201, "mine")
    run(api, "/sessions/mine", "kept = 1")
    again = api.post("/sessions", json={"id": "mine"})
    assert (again.status_code, again.json()["created_at"]) == (200, first.json()["created_at"])
    assert run(api, "/sessions/mine", "print(kept)")["stdout"] == "1\n"
    assert [each["id"] for each in api.get("/sessions").json()["sessions"]] == ["mine"]
    assert api.delete("/sessions/mine").status_code == 204
    assert api.get("/sessions/mine").status_code == 404
    assert api.delete("/sessions/mine").status_code == 404


def test_identifiers_that_no_path_can_name_are_refused(api: httpx.Client) -> None:
    for identifier in ("", "..", "a/b", "a b", "x" * 129, "é", "a\n"):
        answer = api.post("/sessions", json={"id": identifier})
        assert answer.status_code == 400, identifier
        assert "use 1 to 128 ASCII letters" in answer.json()["error"]["message"]
    assert api.post("/sessions", json={"id": 1}).status_code == 400


def test_a_restart_deletes_variables_and_keeps_files(api: httpx.Client, session: str) -> None:
    run(api, session, "x = 1\nopen('f', 'w').close()")
    assert api.post(f"{session}/restart").status_code == 200
    assert run(api, session, "print('x' in globals())")["stdout"] == "False\n"
    assert [each["path"] for each in api.get(f"{session}/files").json()["files"]] == ["f"]


def test_a_checkpoint_restores_variables_and_files(api: httpx.Client, session: str) -> None:
    run(api, session, "x = 1\nopen('f', 'w').write('before')")
    made = api.post(f"{session}/checkpoints", json={"name": "clean"})
    assert (made.status_code, made.json()["name"]) == (201, "clean")
    run(api, session, "x = 2\nopen('f', 'w').write('after')")
    assert api.post(f"{session}/restore", json={"checkpoint": "clean"}).status_code == 200
    assert run(api, session, "print(x, open('f').read())")["stdout"] == "1 before\n"
    assert api.get(f"{session}/checkpoints").json() == {"checkpoints": [made.json()]}
    assert api.delete(f"{session}/checkpoints/clean").status_code == 204


def test_a_checkpoint_that_does_not_exist_is_not_found(api: httpx.Client, session: str) -> None:
    api.post(f"{session}/checkpoints", json={"name": "one"})
    for answer in (
        api.post(f"{session}/restore", json={"checkpoint": "two"}),
        api.post(f"{session}/fork", json={"checkpoint": "two"}),
        api.delete(f"{session}/checkpoints/two"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "CheckpointNotFound")
        assert "'one'" in answer.json()["error"]["message"]
    api.post(f"{session}/restart")
    answer = api.post(f"{session}/restore", json={"checkpoint": "one"})
    assert answer.json()["error"]["code"] == "CheckpointNotFound"


def test_names_of_checkpoints_are_checked(api: httpx.Client, session: str) -> None:
    assert api.post(f"{session}/checkpoints").json()["name"] == "1"
    for name in ("", "a\nb", "x" * 200, "v1/a", ".."):
        answer = api.post(f"{session}/checkpoints", json={"name": name})
        assert answer.status_code == 400
        assert "printable" in answer.json()["error"]["message"]
    assert api.post(f"{session}/checkpoints", json={"name": "1"}).status_code == 409
    replaced = {"name": "1", "replace": True}
    assert api.post(f"{session}/checkpoints", json=replaced).status_code == 201
    (kept,) = api.get(f"{session}/checkpoints").json()["checkpoints"]
    assert kept["name"] == "1"


def test_a_checkpoint_has_a_lifetime(api: httpx.Client, session: str) -> None:
    made = api.post(f"{session}/checkpoints", json={"lifetime_seconds": 0.2}).json()
    assert made["expires_at"] > made["created_at"]
    wait_for(lambda: api.get(f"{session}/checkpoints").json() == {"checkpoints": []})


def test_a_session_that_cannot_be_copied_says_why(api: httpx.Client, session: str) -> None:
    run(
        api,
        session,
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
    )
    answer = api.post(f"{session}/checkpoints")
    assert answer.status_code == 409
    assert "thread" in answer.json()["error"]["message"]


def test_a_fork_is_independent(api: httpx.Client, session: str) -> None:
    run(api, session, "x = 1\nopen('f', 'w').close()")
    api.post(f"{session}/checkpoints", json={"name": "one"})
    run(api, session, "x = 2")
    present = api.post(f"{session}/fork", json={"id": "present"})
    assert (present.status_code, present.json()["id"]) == (201, "present")
    past = api.post(f"{session}/fork", json={"checkpoint": "one"}).json()["id"]
    assert run(api, "/sessions/present", "print(x)\nx = 3")["stdout"] == "2\n"
    assert run(api, f"/sessions/{past}", "print(x)")["stdout"] == "1\n"
    assert run(api, session, "print(x)")["stdout"] == "2\n"
    assert api.post(f"{session}/fork", json={"id": "present"}).status_code == 409
    for name in ("present", past):
        assert api.delete(f"/sessions/{name}").status_code == 204


def test_a_checkpoint_waits_for_the_current_run(api: httpx.Client, session: str) -> None:
    path = start(api, session, f"x = 1\n{FOREVER}")
    wait_for(lambda: api.get(path).json()["status"] == "running")
    with pytest.raises(httpx.ReadTimeout):
        api.post(f"{session}/checkpoints", timeout=0.5)
    api.post(f"{path}/cancel")
    wait_for(lambda: api.get(f"{session}/checkpoints").json()["checkpoints"])
