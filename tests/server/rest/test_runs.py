"""Runs: results, limits, background, cancellation, who may see them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from cellblock.server.owners import Quotas

from ..serving import Server, leaving_post, serving
from .requesting import FOREVER, run, start, wait_for


def test_a_run_answers_with_everything_that_it_did(api: httpx.Client, session: str) -> None:
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('f', 'w').close()\n6 * 7"
    result = run(api, session, code)
    assert (result["exit_code"], result["outcome"], result["limit"]) == (0, "ok", None)
    assert (result["stdout"], result["stderr"]) == ("out\n42\n", "err\n")
    assert result["displays"] == [{"text/plain": "42"}]
    assert result["files"] == ["f"]
    assert result["usage"]["wall_seconds"] > 0


def test_variables_stay_in_a_session(api: httpx.Client, session: str) -> None:
    run(api, session, "x = 6")
    assert run(api, session, "print(x * 7)")["stdout"] == "42\n"


def test_a_run_of_its_own_leaves_no_session(api: httpx.Client) -> None:
    info = api.post("/runs", json={"code": "print(6 * 7)"}).json()
    assert (info["session_id"], info["result"]["stdout"]) == (None, "42\n")
    assert api.get("/sessions").json() == {"sessions": []}


def test_a_run_of_its_own_is_a_fresh_process_that_shows_its_last_value(api: httpx.Client) -> None:
    result = run(api, "", "import sys\nprint(__name__, 'IPython' in sys.modules)\n6 * 7")
    assert (result["stdout"], result["displays"]) == ("__main__ False\n42\n", [])
    assert run(api, "", "print(1); 2;")["stdout"] == "1\n"
    result = run(api, "", "1 / 0")
    assert result["stderr"].count("line 1, in <module>") == 1
    assert run(api, "", "x = ")["stderr"].endswith("SyntaxError: invalid syntax\n")


def test_a_run_of_its_own_has_no_session_that_others_see(api: httpx.Client) -> None:
    path = start(api, "", FOREVER)
    wait_for(lambda: api.get(path).json()["status"] == "running")
    assert api.get("/sessions").json() == {"sessions": []}
    assert api.post(f"{path}/cancel").json()["result"]["outcome"] == "cancelled"


def test_a_program_that_fails_is_a_result(api: httpx.Client, session: str) -> None:
    assert run(api, session, "exit 3", language="bash")["exit_code"] == 3
    result = run(api, session, "print('before')\n1/0")
    assert (result["outcome"], result["stdout"]) == ("error", "before\n")
    assert "ZeroDivisionError" in result["stderr"]


def test_a_time_limit_is_a_result(api: httpx.Client, session: str) -> None:
    result = run(api, session, FOREVER, timeout_seconds=0.5)
    assert (result["exit_code"], result["outcome"]) == (124, "timeout")
    assert result["stdout"] == "begun\n"


def test_values_that_json_lacks_do_not_break_the_answer(api: httpx.Client, session: str) -> None:
    code = (
        "from IPython.display import display\n"
        "display({'application/json': {'a': float('nan'), 'b': float('inf')}}, raw=True)\n"
        "print('\\x00\\x1b\\ufffe')"
    )
    result = run(api, session, code)
    assert result["displays"][0]["application/json"] == {"a": None, "b": None}


def test_a_run_in_the_background_can_be_requested_later(api: httpx.Client, session: str) -> None:
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint(6 * 7)"
    path = start(api, session, code)
    assert api.get(path).json()["status"] in ("queued", "running")
    api.put(f"{session}/files/go", content=b"")
    ended = wait_for(lambda: _ended(api, path))
    assert ended["result"]["stdout"] == "42\n"
    listed = api.get(f"{session}/runs").json()["runs"]
    assert [each["id"] for each in listed] == [ended["id"]]


def _ended(client: httpx.Client, path: str) -> dict[str, Any] | None:
    info = client.get(path).json()
    return info if info["status"] == "ended" else None


def test_cancel_ends_a_run_and_keeps_its_output(api: httpx.Client, session: str) -> None:
    path = start(api, session, f"kept = 1\n{FOREVER}")
    with api.stream("GET", f"{path}/events") as events:
        assert any("begun" in line for line in events.iter_lines())
    info = api.post(f"{path}/cancel").json()
    result = info["result"]
    assert (result["outcome"], result["exit_code"]) == ("cancelled", 125)
    assert result["stdout"] == "begun\n"
    assert run(api, session, "print(kept)")["stdout"] == "1\n"
    assert api.post(f"{path}/cancel").json() == info


def test_second_cancel_kills_a_run_that_goes_on(api: httpx.Client, session: str) -> None:
    run(api, session, "before = 1")
    caught = "import os, signal\nwhile True:\n    try: os.write(1, b'caught\\n'); signal.pause()\n"
    path = start(api, session, f"kept = 1\n{caught}    except KeyboardInterrupt: pass")
    with api.stream("GET", f"{path}/events") as events, ThreadPoolExecutor() as thread:
        caught_lines = (line for line in events.iter_lines() if "caught" in line)
        next(caught_lines)
        first = thread.submit(api.post, f"{path}/cancel")
        next(caught_lines)  # the first one has arrived, and the code goes on
        result = api.post(f"{path}/cancel").json()["result"]
        assert first.result().json()["result"] == result
    assert (result["outcome"], result["exit_code"]) == ("cancelled", 125)
    assert "The session was restored" in result["notice"]
    assert run(api, session, "print(before, 'kept' in globals())")["stdout"] == "1 False\n"


def test_a_queued_run_can_be_cancelled(api: httpx.Client, session: str) -> None:
    first = start(api, session, FOREVER)
    second = start(api, session, "open('second', 'w').close()")
    assert api.get(second).json()["status"] == "queued"
    result = api.post(f"{second}/cancel").json()["result"]
    assert (result["outcome"], result["exit_code"]) == ("cancelled", 125)
    assert api.get(first).json()["status"] == "running"
    api.post(f"{first}/cancel")
    assert api.get(f"{session}/files").json() == {"files": []}


def test_a_client_that_leaves_ends_its_run(server: Server, api: httpx.Client, session: str) -> None:
    with leaving_post(server, api, f"/v1{session}/runs", {"code": FOREVER}):
        wait_for(lambda: _statuses(api, session) == ["running"])
    assert run(api, session, "print('free')")["stdout"] == "free\n"
    (left, _) = api.get(f"{session}/runs").json()["runs"]
    assert left["result"]["outcome"] == "cancelled"


def _statuses(client: httpx.Client, session: str) -> list[str]:
    return [run["status"] for run in client.get(f"{session}/runs").json()["runs"]]


def test_deleting_a_session_cancels_its_runs(api: httpx.Client, session: str) -> None:
    paths = [start(api, session, FOREVER) for _ in range(2)]
    wait_for(lambda: api.get(paths[0]).json()["status"] == "running")
    assert api.delete(session).status_code == 204
    for path in paths:
        ended = wait_for(lambda path=path: _ended(api, path))
        assert ended["result"]["outcome"] == "cancelled"


def test_sigterm_ends_runs_in_the_background(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as server,
        server.client(server.add_key("a"), "/v1") as api,
    ):
        path = start(api, f"/sessions/{api.post('/sessions').json()['id']}", FOREVER)
        wait_for(lambda: api.get(path).json()["status"] == "running")


def test_a_full_queue_refuses_runs_in_every_mode(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--max-queued", "1") as server,
        server.client(server.add_key("a", Quotas(running=1)), "/v1") as api,
    ):
        session = f"/sessions/{api.post('/sessions').json()['id']}"
        paths = [start(api, session, FOREVER) for _ in range(2)]
        for mode in ({}, {"background": True}, {"stream": True}):
            answer = api.post(f"{session}/runs", json={"code": "1", **mode})
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
        for path in paths:
            api.post(f"{path}/cancel")
        assert run(api, session, "print('free')")["stdout"] == "free\n"


def test_runs_belong_to_their_key(server: Server, api: httpx.Client, session: str) -> None:
    path = start(api, session, FOREVER)
    with server.client(server.add_key("a stranger"), "/v1") as stranger:
        for method, where in (
            ("GET", path),
            ("GET", f"{path}/events"),
            ("POST", f"{path}/cancel"),
            ("GET", session),
            ("GET", f"{session}/runs"),
            ("DELETE", session),
        ):
            assert stranger.request(method, where).status_code == 404, where
        assert stranger.get("/sessions").json() == {"sessions": []}
    assert api.post(f"{path}/cancel").json()["result"]["outcome"] == "cancelled"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"code": 1}',
        b'{"language": "python"}',
        b'{"code": "1", "timeout_seconds": 0}',
        b'{"code": "1", "stream": "yes"}',
        b'{"code": "1", "unknown": 1}',
    ],
)
def test_a_malformed_body_is_refused(api: httpx.Client, session: str, body: bytes) -> None:
    answer = api.post(f"{session}/runs", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRequest")


@pytest.mark.parametrize("language", ["sql", "json", "text", "diff", "html", "CSS", "cobol"])
def test_a_language_that_does_not_run_is_refused(
    api: httpx.Client, session: str, language: str
) -> None:
    body = {"code": "# filename: saved\n", "language": language}
    for path, mode in (("/runs", {}), (f"{session}/runs", {"background": True})):
        answer = api.post(path, json={**body, **mode})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "InvalidRequest")
        assert "python, sh, bash, pwsh, javascript" in answer.json()["error"]["message"]
    assert api.get(f"{session}/files").json() == {"files": []}


def test_input_says_that_it_is_not_available(api: httpx.Client, session: str) -> None:
    for code in ("input()", "import getpass\ngetpass.getpass()"):
        shown = run(api, session, code)["output"]
        assert "input() is not available here. Put the values into the code" in shown
        assert "input_callback" not in shown


def test_unknown_sessions_are_not_created_by_a_run(api: httpx.Client) -> None:
    answer = api.post("/sessions/unknown/runs", json={"code": "1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "SessionNotFound")


def test_unknown_paths_and_methods_have_structured_errors(server: Server, key: str) -> None:
    with server.client(key, "/v1") as api:
        assert api.get("/files").json()["error"]["code"] == "NotFound"
        refused = api.put("/sessions")
        assert refused.json()["error"]["code"] == "MethodNotAllowed"
        assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    with server.client(None, "/v1") as stranger:
        answer = stranger.get("/sessions")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "Unauthorized")
