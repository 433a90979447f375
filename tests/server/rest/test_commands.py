"""Commands in a session: results, live output, and what may not be requested."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from cellblock.server.owners import Quotas

from ..serving import Server, leaving_post
from .requesting import FOREVER, parse_events, run, start, wait_for


def command(api: httpx.Client, session: str, text: str | list[str], **body: Any) -> dict[str, Any]:
    """Run a command and return what it did."""
    answer = api.post(f"{session}/commands", json={"command": text, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_command_answers_with_everything_that_it_did(api: httpx.Client, session: str) -> None:
    done = command(api, session, "pwd; echo err >&2; exit 3")
    assert (done["stdout"], done["stderr"]) == ("/mnt/data\n", "err\n")
    assert (done["exit_code"], done["timed_out"], done["truncated"]) == (3, False, False)
    assert done["usage"]["wall_seconds"] > 0
    done = command(api, session, ["printf", "%s|", "$HOME", "a b"])
    assert done["stdout"] == "$HOME|a b|"
    body = {"cwd": "/tmp", "env": {"NAME": "value"}, "stdin": "in", "merge_stderr": True}
    done = command(api, session, "pwd; echo $NAME; cat >&2", **body)
    assert (done["stdout"], done["stderr"]) == ("/tmp\nvalue\nin", "")


def test_commands_and_code_share_files_and_processes(api: httpx.Client, session: str) -> None:
    command(api, session, "echo text >file; setsid sleep 1000 >/dev/null 2>&1 &")
    assert run(api, session, "print(open('file').read())")["stdout"] == "text\n\n"
    assert command(api, session, "pgrep -x sleep | wc -l")["stdout"] == "1\n"


def test_a_command_does_not_wait_for_the_code_of_its_session(
    api: httpx.Client, session: str
) -> None:
    path = start(api, session, FOREVER)
    wait_for(lambda: api.get(path).json()["status"] == "running")
    assert command(api, session, "echo beside")["stdout"] == "beside\n"
    api.post(f"{path}/cancel")


@pytest.mark.slow
def test_long_output_keeps_its_beginning(api: httpx.Client, session: str) -> None:
    done = command(api, session, "head -c 100000 /dev/zero | tr '\\0' x", max_output_bytes=10)
    assert (done["stdout"], done["truncated"]) == ("x" * 10, True)


def test_a_command_ends_at_its_time_limit(api: httpx.Client, session: str) -> None:
    done = command(api, session, "echo begun; sleep 1000", timeout_seconds=0.5)
    assert (done["stdout"], done["exit_code"], done["timed_out"]) == ("begun\n", 124, True)


def test_output_arrives_while_the_command_runs(api: httpx.Client, session: str) -> None:
    text = "printf 'h\\303'; while [ ! -e go ]; do sleep 0.01; done; printf '\\251'; exit 5"
    body = {"command": text, "stream": True}
    with api.stream("POST", f"{session}/commands", json=body) as answer:
        events = parse_events(answer.iter_lines())
        first = next(events)
        assert (first.name, first.data) == ("output", {"stream": "stdout", "text": "h"})
        assert api.put(f"{session}/files/go").status_code == 200
        *output, ended = events
    assert [event.data["text"] for event in output] == ["é"]
    assert (ended.name, ended.data["exit_code"]) == ("ended", 5)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_client_that_leaves_ends_its_command(
    server: Server, api: httpx.Client, session: str, is_stream: bool
) -> None:
    body = {"command": "touch begun; exec sleep 1000", "stream": is_stream}
    with leaving_post(server, api, f"/v1{session}/commands", body):
        wait_for(lambda: api.get(f"{session}/files/begun").status_code == 200)
    wait_for(lambda: command(api, session, "pgrep -x sleep")["exit_code"] == 1)


def test_what_cannot_be_run_is_refused_by_name(api: httpx.Client, session: str) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"command": []}, "command"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "true", "cwd": "missing"}, "missing"),
        ({"command": ["/etc/passwd"]}, "/etc/passwd"),
        ({"command": "true", "timeout_seconds": 0}, "timeout_seconds"),
        ({"command": "true", "max_output_bytes": 1 << 30}, "max_output_bytes"),
        ({"command": "true", "user": "root"}, "user"),
        ({}, "command"),
    ]
    for body, text in cases:
        answer = api.post(f"{session}/commands", json=body)
        assert answer.status_code == 400, answer.text
        assert text in answer.json()["error"]["message"]
        answer = api.post(f"{session}/commands", json={**body, "stream": True})
        assert answer.status_code == 400, body


def test_a_slow_reader_keeps_no_place_of_a_command_that_has_ended(
    server: Server,
) -> None:
    key = server.add_key("one at a time", Quotas(running=1))
    with server.client(key, "/v1") as one:
        slow, other = (f"/sessions/{one.post('/sessions').json()['id']}" for _ in range(2))
        body = {"command": "head -c 9000000 /dev/zero | tr '\\0' x", "stream": True}
        with one.stream("POST", f"{slow}/commands", json=body) as answer:
            events = parse_events(answer.iter_lines())
            next(events)  # and not the rest, for which the connection has no room
            assert command(one, other, "echo beside")["stdout"] == "beside\n"
            *output, ended = events
        assert sum(len(each.data["text"]) for each in output) > 8_000_000
        assert ended.name == "ended"


def test_a_command_has_no_idempotency_key(api: httpx.Client, session: str) -> None:
    headers = {"Idempotency-Key": "once"}
    answer = api.post(f"{session}/commands", json={"command": "touch file"}, headers=headers)
    assert (answer.status_code, "Idempotency-Key" in answer.text) == (400, True)
    assert api.get(f"{session}/files/file").status_code == 404


def test_a_session_that_ends_ends_its_commands(api: httpx.Client) -> None:
    path = f"/sessions/{api.post('/sessions').json()['id']}"
    with ThreadPoolExecutor() as pool:
        body = {"command": "touch begun; sleep 1000"}
        answer = pool.submit(api.post, f"{path}/commands", json=body)
        wait_for(lambda: api.get(f"{path}/files/begun").status_code == 200)
        assert api.delete(path).status_code == 204
        assert answer.result().status_code == 404
    assert api.post(f"{path}/commands", json=body).json()["error"]["code"] == "SessionNotFound"


def test_a_key_sees_and_ends_only_commands_of_its_own(server: Server, api: httpx.Client) -> None:
    path = f"/sessions/{api.post('/sessions').json()['id']}"
    with server.client(server.add_key("another"), "/v1") as other:
        answer = other.post(f"{path}/commands", json={"command": "true"})
        assert answer.status_code == 404
        theirs = f"/sessions/{other.post('/sessions').json()['id']}"
        command(other, theirs, "setsid sleep 1000 >/dev/null 2>&1 &")
        assert command(api, path, "pgrep -x sleep; kill -9 -1")["stdout"] == ""
        assert command(other, theirs, "pgrep -x sleep | wc -l")["stdout"] == "1\n"
    api.delete(path)


def test_copies_are_refused_while_a_command_runs_unless_it_may_be_ended(
    api: httpx.Client, session: str
) -> None:
    command(api, session, "setsid sleep 1000 >/dev/null 2>&1 &")
    for path, body in [
        ("checkpoints", {"name": "c"}),
        ("restore", {"checkpoint": "c"}),
        ("fork", {}),
    ]:
        refused = api.post(f"{session}/{path}", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "SessionConflict")
        assert "sleep 1000" in refused.json()["error"]["message"]
        done = api.post(f"{session}/{path}", json={**body, "end_commands": True})
        assert done.status_code in (200, 201), done.text
        assert command(api, session, "pgrep -x sleep")["exit_code"] == 1
        command(api, session, "setsid sleep 1000 >/dev/null 2>&1 &")
