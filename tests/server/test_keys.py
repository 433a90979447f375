"""Keys: who may use the server, and what of whom is visible to whom."""

from __future__ import annotations

import asyncio
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event, select, text
from sqlalchemy.orm import Session

from cellblock.sandbox.cgroups import find_cgroups
from cellblock.server.owners import Quotas
from cellblock.server.state.tables import KeyRow
from tests.suite.tiers import exhaustive

from .rest.requesting import wait_for
from .serving import NEW, OLD, Server, run_old, serving


def test_a_request_without_a_valid_key_is_refused(server: Server) -> None:
    for token in (None, "cb_unknown", "x" * 10_000):
        with server.client(token) as client:
            answer = run_old(client, "1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "Unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"


def _status(client: httpx.Client) -> int:
    """Return the status of a request that only needs a key."""
    return client.get("/listSessions", params={"api-version": NEW}).status_code


def _wait_for_refusal(client: httpx.Client) -> float:
    """Send requests until the key is refused. Return when the last accepted one was sent."""
    accepted = sent = time.time()
    while (status := _status(client)) == 200:
        accepted, sent = sent, time.time()
    assert status == 401
    return accepted


def test_a_revoked_key_is_refused_within_a_second(server: Server) -> None:
    with server.client(server.add_key("revoked")) as client:
        assert _status(client) == 200
        server.keys.revoke("revoked")
        revoked = time.time()
        assert _wait_for_refusal(client) - revoked < 1.2  # the last request, however long it took


def test_an_expired_key_is_refused(server: Server) -> None:
    _, key = server.keys.add("expired", expires_at=1)
    with server.client(key) as client:
        assert "expired" in run_old(client, "1").json()["error"]["message"]


@pytest.mark.slow
def test_a_key_is_refused_from_the_second_in_which_it_expires(server: Server) -> None:
    expires_at = int(time.time()) + 2
    _, key = server.keys.add("short-lived", expires_at=expires_at)
    with server.client(key) as client:
        assert _status(client) == 200 or time.time() >= expires_at
        assert _wait_for_refusal(client) - expires_at < 0.2


def test_a_new_key_is_accepted_at_once_after_it_was_unknown(server: Server) -> None:
    key = server.add_key("late")
    row = _take_row(server, "late")
    with server.client(key) as client:
        assert _status(client) == 401
        _put_row(server, row)
        assert _status(client) == 200


def _take_row(server: Server, name: str) -> dict[str, Any]:
    """Delete a key from the database. Return its row."""
    with Session(server.keys._engine) as session, session.begin():
        row = session.scalars(select(KeyRow).where(KeyRow.name == name)).one()
        session.delete(row)
        return {column.key: getattr(row, column.key) for column in KeyRow.__table__.columns}


def _put_row(server: Server, row: dict[str, Any]) -> None:
    with Session(server.keys._engine) as session, session.begin():
        session.add(KeyRow(**row))


def test_a_key_is_read_from_the_database_once_in_a_second(server: Server) -> None:
    key = server.add_key("busy")
    reads = 0

    def count(*_arguments: object) -> None:
        nonlocal reads
        reads += 1

    async def find_often() -> None:
        for _ in range(50):
            await server.keys.find_owner(key)

    event.listen(server.keys._engine, "before_cursor_execute", count)
    began = time.monotonic()
    asyncio.run(find_often())
    event.remove(server.keys._engine, "before_cursor_execute", count)
    assert 1 <= reads <= 1 + (time.monotonic() - began)


@pytest.mark.slow
def test_the_result_of_a_run_is_not_lost_when_the_database_fails(tmp_path: Path) -> None:
    quotas = Quotas(cpu_seconds_a_day=100)
    with (
        serving(tmp_path) as server,
        server.client(server.add_key("counted", quotas)) as client,
        ThreadPoolExecutor() as pool,
    ):
        code = "open('begun', 'w').close()\nimport os, time\n"
        code += "while not os.path.exists('go'): time.sleep(0.01)\n6 * 7"
        running = pool.submit(run_old, client, code)
        files = "/files/content/begun"
        params = {"api-version": OLD, "identifier": "main"}
        while client.get(files, params=params).status_code != 200:
            pass
        with server.keys._engine.begin() as connection:
            connection.execute(text("DROP TABLE daily_usage"))
        client.post("/files/upload", params=params, files={"file": ("go", b"")})
        answer = running.result()
        assert answer.status_code == 200
        assert answer.json()["properties"]["result"] == 42
    assert "they cannot be written" in "".join(server.lines)


def test_two_keys_with_one_identifier_have_two_sessions(server: Server) -> None:
    with server.client(server.add_key("one")) as one, server.client(server.add_key("two")) as two:
        run_old(one, "secret = 1\nopen('secret.txt', 'w').write('x')", "same")
        assert run_old(two, "secret", "same").json()["properties"]["status"] == "Failure"
        params = {"api-version": OLD, "identifier": "same"}
        assert two.get("/files", params=params).json()["value"] == []
        listed = two.get("/listSessions", params={"api-version": NEW}).json()["sessions"]
        assert len(listed) == 1
        two.delete("/session", params=params)
        assert run_old(one, "secret", "same").json()["properties"]["result"] == 1


def test_the_quota_of_sessions_is_kept(server: Server) -> None:
    with server.client(server.add_key("few", Quotas(sessions=1))) as client:
        assert run_old(client, "1", "first").status_code == 200
        answer = run_old(client, "1", "second")
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "TooManySessions")
        assert int(answer.headers["retry-after"]) > 0
        client.delete("/session", params={"api-version": NEW, "identifier": "first"})
        assert run_old(client, "1", "second").status_code == 200


_WORK = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(_WORK, id="of the block"),
        pytest.param(
            "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\npid = os.fork()\n"
            f"if pid == 0:\n    exec({_WORK!r})\n    os._exit(0)\n"
            "try: os.waitpid(pid, 0)\nexcept ChildProcessError: pass",  # it waits, but never reaps
            id="of a child that nobody can wait for",
            marks=pytest.mark.skipif(not find_cgroups().cpu_time, reason="needs control groups"),
        ),
    ],
)
def test_the_quota_of_cpu_seconds_is_kept(server: Server, code: str) -> None:
    with server.client(
        server.add_key(f"short {len(code)}", Quotas(cpu_seconds_a_day=0.2))
    ) as client:
        assert run_old(client, code).status_code == 200
        answer = run_old(client, "1")
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "TooManyRequests")


def test_keys_are_not_in_the_database_or_the_log(server: Server, key: str, tmp_path: Path) -> None:
    with server.client(key) as client:
        run_old(client, "print('private output')  # private code")
    database = Path(str(server.keys._engine.url.database))
    for file in database.parent.glob("server.db*"):
        assert key.encode() not in file.read_bytes()
    wait_for(lambda: '"operation": "azure.execute"' in "".join(server.lines))
    log = "".join(server.lines)
    assert key not in log
    assert "private" not in log


def test_health_needs_no_key(server: Server) -> None:
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/ready").json() == {"status": "ready"}


@pytest.mark.skipif(not find_cgroups().cpu_time, reason="needs control groups")
@pytest.mark.parametrize("ending", exhaustive(["delete", "run", "restart"]))
def test_what_a_run_leaves_behind_counts_for_the_quota(server: Server, ending: str) -> None:
    key = server.add_key(f"leaves {ending}", Quotas(cpu_seconds_a_day=100))
    with server.client(key) as client:
        session = client.post("/v1/sessions").json()["id"]
        here = f"/v1/sessions/{session}"
        program = shlex.quote(f"{_WORK}open('done', 'w').close()")
        command = f"python3 -c {program} >/dev/null 2>&1 &"
        answer = client.post(f"{here}/commands", json={"command": command})
        assert answer.status_code == 200, answer.text
        wait_for(lambda: client.get(f"{here}/files/done").status_code == 200)
        if ending == "run":
            client.post(f"{here}/runs", json={"code": "1"})
        elif ending == "restart":
            client.post(f"{here}/restart")
            client.post(f"{here}/runs", json={"code": "1"})
        else:
            client.delete(here)
        wait_for(lambda: client.get("/v1/usage").json()["usage"][0]["cpu_seconds"] >= 0.3)
