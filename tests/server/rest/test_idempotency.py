"""The header Idempotency-Key: a request that is sent again gets the same run."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest

from ..serving import Server, leaving_post
from .requesting import run, wait_for


def _send(api: httpx.Client, path: str, key: str, **body: Any) -> httpx.Response:
    return api.post(path, json=body, headers={"Idempotency-Key": key})


@pytest.fixture
def key_id() -> str:
    return str(uuid4())


def test_a_retry_gets_the_result_of_the_first_run(
    api: httpx.Client, session: str, key_id: str
) -> None:
    path = f"{session}/runs"
    first = _send(api, path, key_id, code="x = globals().get('x', 0) + 1\nx")
    again = _send(api, path, key_id, code="x = globals().get('x', 0) + 1\nx")
    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert run(api, session, "x")["stdout"] == "1\n"


def test_a_run_goes_on_when_its_client_loses_the_connection(
    server: Server, api: httpx.Client, session: str, key_id: str
) -> None:
    code = "import os, time\nopen('begun', 'w').close()\n" + (
        "while not os.path.exists('go'): time.sleep(0.01)\n'done'"
    )
    path, files = f"{session}/runs", f"{session}/files"
    with leaving_post(server, api, f"/v1{path}", {"code": code}, {"Idempotency-Key": key_id}):
        wait_for(lambda: "begun" in api.get(files).text)
    with ThreadPoolExecutor() as threads:
        again = threads.submit(_send, api, path, key_id, code=code)
        wait_for(lambda: api.get(path).json()["runs"][0]["status"] == "running")
        api.put(f"{files}/go", content=b"")
        result = again.result().json()["result"]
    assert (result["outcome"], result["stdout"]) == ("ok", "'done'\n")


def test_events_and_background_runs_are_sent_again(
    api: httpx.Client, session: str, key_id: str
) -> None:
    path = f"{session}/runs"
    first = _send(api, path, key_id, code="print('once')", background=True)
    again = _send(api, path, key_id, code="print('once')", background=True)
    assert first.status_code == again.status_code == 202
    assert first.headers["Location"] == again.headers["Location"]
    events = _send(api, path, key_id, code="print('once')", background=True, stream=True).text
    texts = re.findall(r'^event: output\ndata: \{.*?"text":"(.*?)"', events, re.MULTILINE)
    assert "".join(texts) == r"once\n"
    assert "event: ended\n" in events


def test_another_request_under_the_same_key_is_refused(
    api: httpx.Client, session: str, key_id: str
) -> None:
    path = f"{session}/runs"
    assert _send(api, path, key_id, code="1").status_code == 200
    changes = [{"code": "2"}, {"timeout_seconds": 5}, {"language": "bash"}, {"background": True}]
    answers = [_send(api, path, key_id, **{"code": "1", **change}) for change in changes]
    for refused in (*answers, _send(api, "/runs", key_id, code="1")):
        assert refused.status_code == 422
        assert refused.json()["error"]["code"] == "IdempotencyKeyReused"


def test_keys_of_other_tenants_are_others(
    server: Server, api: httpx.Client, session: str, key_id: str
) -> None:
    code = "import uuid\nprint(uuid.uuid4())"
    first, second = (_send(api, "/runs", key_id, code=code).json() for _ in range(2))
    assert first["result"] == second["result"]
    with server.client(server.add_key("other"), "/v1") as other:
        again = _send(other, "/runs", key_id, code="2")
    assert again.status_code == 200
    assert again.json()["id"] != first["id"]


def test_a_run_that_was_refused_can_be_tried_again(api: httpx.Client, key_id: str) -> None:
    path = f"/sessions/{key_id}/runs"
    assert _send(api, path, key_id, code="1").status_code == 404
    api.post("/sessions", json={"id": key_id})
    done = _send(api, path, key_id, code="1")
    assert done.json()["result"]["stdout"] == "1\n"
    assert "Idempotent-Replayed" not in done.headers


def test_a_key_of_another_length_is_refused(api: httpx.Client) -> None:
    for length in (0, 256):
        refused = _send(api, "/runs", "x" * length, code="1")
        assert refused.status_code == 400
        assert "1 to 255 characters" in refused.json()["error"]["message"]
