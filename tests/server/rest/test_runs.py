"""Runs: results, limits, background, cancellation, who may see them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import httpx
import pytest

from cellblock.batch import Program
from cellblock.server.owners import Quotas
from cellblock.server.state.database import open_database
from cellblock.server.state.usage import read_usage
from cellblock.sync import run_many

from ..conftest import Servers
from ..serving import Server, leaving_post, run_old
from ..state.reading import runs_of
from .requesting import FOREVER, parse_events, run, start, wait_for


def test_a_run_answers_with_everything_that_it_did(api: httpx.Client, session: str) -> None:
    code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('f', 'w').close()\n6 * 7"
    result = run(api, session, code)
    assert (result["exit_code"], result["outcome"], result["limit"]) == (0, "ok", None)
    assert (result["stdout"], result["stderr"]) == ("out\n42\n", "err\n")
    assert result["displays"] == [{"text/plain": "42"}]
    assert result["files"] == ["f"]
    assert result["usage"]["wall_seconds"] > 0


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
    info = api.post(f"{path}/cancel").json()
    assert (info["session_id"], info["result"]["outcome"]) == (None, "cancelled")
    assert api.get("/sessions").json() == {"sessions": []}


def test_a_program_that_fails_is_a_result(api: httpx.Client, session: str) -> None:
    assert run(api, session, "exit 3", language="bash")["exit_code"] == 3
    result = run(api, session, "print('before')\n1/0")
    assert (result["outcome"], result["stdout"]) == ("error", "before\n")
    assert "ZeroDivisionError" in result["stderr"]


def test_a_program_with_tests_gets_the_verdict_of_run_many(api: httpx.Client) -> None:
    """A program that ends with exit code 0 before its tests is no success."""
    function: dict[str, Any] = {"code": "assert f(2) == 4", "entry_point": "f"}
    cases = {"cases": [{"stdin": "2", "stdout": "4"}, {"stdin": "3", "stdout": "6"}]}
    double = "print(2 * int(input()))"
    programs: list[dict[str, Any]] = [
        {"code": "def f(x): return 2 * x", "tests": function},
        {"code": "def f(x): return x", "tests": function},
        {"code": "import os\nos._exit(0)", "tests": function},
        {"code": "import os\nos._exit(0)"},
        {"code": "raise SystemExit(3)"},
        {"code": double, "tests": cases},
        {"code": f"{double}\nprint('and more')", "tests": cases},
        {"code": "print(open('a').read())", "files": {"a": "4\n6"}, "language": "python"},
        {"code": "echo 4", "tests": {"cases": [{"stdout": "4"}]}, "language": "sh"},
    ]
    subjects = [
        Program.from_json(json.dumps({**each, "id": str(number)}))
        for number, each in enumerate(programs)
    ]
    verdicts = list(run_many(subjects))
    assert [each.outcome for each in verdicts] == [
        *("passed", "failed", "error", "passed", "failed", "passed", "failed", "passed", "passed")
    ]
    for number, verdict in enumerate(verdicts):
        answer = api.post("/verdicts", json={**programs[number], "id": str(number)})
        assert answer.status_code == 200, answer.text
        found = answer.json()
        expected = {**asdict(verdict), "cases": [asdict(each) for each in verdict.cases]}
        for name in ("id", "outcome", "exit_code", "output", "message", "limit", "cases"):
            assert found[name] == expected[name], (name, programs[number], found)
        assert found["passed"] == verdict.passed


def test_a_program_to_judge_has_limits_and_a_valid_form(
    api: httpx.Client, servers: Servers
) -> None:
    found = api.post("/verdicts", json={"code": "while True: pass", "cpu_seconds": 0.2}).json()
    assert (found["outcome"], found["limit"]) == ("timeout", "cpu_seconds")
    short = servers("--timeout", "1")
    with short.client(short.add_key("judge"), "/v1") as client:
        cases = {"cases": [{"stdout": ""}, {"stdout": ""}, {"stdout": ""}]}
        code = "import time; time.sleep(0.7)"
        found = client.post("/verdicts", json={"code": code, "tests": cases}).json()
        assert (found["outcome"], found["limit"], len(found["cases"])) == (
            "timeout", "wall_seconds", 2
        )  # fmt: skip
    refused: dict[str, Any] = {
        "The language 'klingon' is unknown": {"language": "klingon"},
        "tests: cases must have at least one case": {"tests": {"cases": []}},
        "tests has unknown keys: case": {"tests": {"case": []}},
        "'cpu_seconds' is not valid": {"cpu_seconds": 0},
        "'wall_second' is not valid": {"wall_second": 1},
    }
    for expected, fields in refused.items():
        answer = api.post("/verdicts", json={"code": "", **fields})
        assert answer.status_code == 400, answer.text
        assert expected in answer.json()["error"]["message"]


def test_a_program_whose_client_leaves_is_charged_for_each_run_that_began(server: Server) -> None:
    api = server.client(server.add_key("leaves"), "/v1")
    code = "import signal\nif input(): signal.pause()"
    body = {"code": code, "tests": {"cases": [{"stdin": "\n"}, {"stdin": "1\n"}]}}
    with api, leaving_post(server, api, "/v1/verdicts", body):
        wait_for(lambda: _used_seconds(server, "leaves"))
    (record,) = runs_of(server, "leaves", 2)  # after that of its key
    assert record["outcome"] == "abandoned"
    assert record["cpu_seconds"] > 0


def _used_seconds(server: Server, name: str) -> float:
    engine = open_database(server.database)
    try:
        return sum(each.cpu_seconds for each in read_usage(engine) if each.key_name == name)
    finally:
        engine.dispose()


def test_a_time_limit_is_a_result(api: httpx.Client, session: str) -> None:
    result = run(api, session, FOREVER, timeout_seconds=0.3)
    assert (result["exit_code"], result["outcome"]) == (124, "timeout")
    assert result["stdout"] == "begun\n"


_DISPLAY = """from IPython.display import display
def nested(depth): return [nested(depth - 1)] if depth else 0
display({{"application/json": {}}}, raw=True)
print("\\x00\\x1b\\ufffe", "after")"""


def test_runs_end_whatever_they_display(api: httpx.Client, session: str) -> None:
    for value, shown in (
        ("nested(900)", "nested more than 100 deep"),
        ("nested(700)", "nested more than 100 deep"),
        ("{'a': float('nan'), 'b': float('inf')}", {"a": None, "b": None}),
        ("'\\ud800'", None),
    ):
        body = {"code": _DISPLAY.format(value)}
        answer = api.post(f"{session}/runs", json=body)
        result = json.loads(answer.text, parse_constant=_refuse_constant)["result"]
        assert (result["exit_code"], result["stdout"][-6:]) == (0, "after\n")
        if isinstance(shown, dict):
            assert result["displays"][0]["application/json"] == shown
        assert ("nested more than" in result["stderr"]) == isinstance(shown, str), value
        answer = api.post(f"{session}/runs", json={**body, "stream": True})
        assert [*parse_events(answer.iter_lines())][-1].name == "ended"
        assert run(api, session, "1")["exit_code"] == 0


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


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


@pytest.mark.slow
def test_a_full_queue_refuses_runs_and_commands_of_every_door(servers: Servers) -> None:
    server = servers("--max-queued", "1")
    key = server.add_key("one at a time", Quotas(running=1))
    with (
        server.client(key, "/v1") as api,
        server.client(key) as azure,
        ThreadPoolExecutor() as pool,
    ):
        session = f"/sessions/{api.post('/sessions').json()['id']}"
        paths = [start(api, session, FOREVER) for _ in range(2)]
        command = {"command": "touch begun; while [ ! -e go ]; do sleep 0.01; done"}
        for answer in (
            api.post(f"{session}/runs", json={"code": "1"}),
            api.post(f"{session}/runs", json={"code": "1", "background": True}),
            api.post(f"{session}/runs", json={"code": "1", "stream": True}),
            api.post(f"{session}/commands", json=command),
            run_old(azure, "1", "other"),
        ):
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
        for path in paths:
            api.post(f"{path}/cancel")
        first = pool.submit(api.post, f"{session}/commands", json=command)
        wait_for(lambda: api.get(f"{session}/files/begun").status_code == 200)
        others = [pool.submit(api.post, f"{session}/commands", json=command) for _ in range(2)]
        wait_for(lambda: any(other.done() for other in others))  # one waits, one is refused
        assert api.put(f"{session}/files/go").status_code == 200
        assert first.result().json()["exit_code"] == 0
        assert sorted(other.result().status_code for other in others) == [200, 429]


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


def test_a_malformed_body_is_refused(api: httpx.Client, session: str) -> None:
    for body in (
        b"",
        b"[]",
        b"\xff",
        b'{"code": 1}',
        b'{"language": "python"}',
        b'{"code": "1", "timeout_seconds": 0}',
        b'{"code": "1", "stream": "yes"}',
        b'{"code": "1", "unknown": 1}',
    ):
        answer = api.post(f"{session}/runs", content=body)
        assert answer.status_code == 400, body
        assert answer.json()["error"]["code"] == "InvalidRequest"


def test_a_language_that_does_not_run_is_refused(api: httpx.Client, session: str) -> None:
    for language in ("sql", "json", "text", "diff", "html", "CSS", "cobol"):
        body = {"code": "# filename: saved\n", "language": language}
        for path, mode in (("/runs", {}), (f"{session}/runs", {"background": True})):
            answer = api.post(path, json={**body, **mode})
            assert answer.status_code == 400, language
            assert answer.json()["error"]["code"] == "InvalidRequest"
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
