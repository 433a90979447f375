"""Attempts: a client that was not answered in time gets the same program when it tries again."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import pytest
from starlette.applications import Starlette

from cellblock.server.doors.sandbox_fusion.attempts import Attempts
from cellblock.server.doors.sandbox_fusion.routes import sandbox_fusion_routes
from cellblock.server.http.request_log import RequestLog
from cellblock.server.http.services import Services
from cellblock.server.owners import ANONYMOUS
from cellblock.server.refusals import NotInTime
from cellblock.server.sessions.store import SessionStore
from cellblock.server.settings import ServedSettings

pytestmark = pytest.mark.anyio
_LONG = 1000.0
_MODULE = "cellblock.server.doors.sandbox_fusion.attempts"


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    monkeypatch.setattr(f"{_MODULE}._RETRY_AFTER", 0.0)


class _Work:
    """Work that ends when it may, and how often it was started and cancelled."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.started = self.cancelled = 0

    async def run(self) -> int:
        self.started += 1
        number = self.started
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return number


async def _late(attempts: Attempts[int], key: str, work: _Work) -> None:
    with pytest.raises(NotInTime):
        await attempts.result(key, work.run, 0.001)


async def test_the_next_attempt_gets_the_same_work() -> None:
    attempts, work = Attempts[int](), _Work()
    await _late(attempts, "a", work)
    await _late(attempts, "a", work)
    work.may_end.set()
    assert await attempts.result("a", work.run, _LONG) == 1
    assert await attempts.result("a", work.run, _LONG) == 2


async def test_what_ended_between_two_attempts_is_the_answer_of_the_second() -> None:
    attempts, work = Attempts[int](), _Work()
    await _late(attempts, "a", work)
    work.may_end.set()
    await asyncio.sleep(0)
    assert await attempts.result("a", work.run, _LONG) == 1


async def test_other_requests_have_work_of_their_own_and_equal_ones_keep_their_order() -> None:
    attempts, work = Attempts[int](), _Work()
    both = [attempts.result("a", work.run, 0.01) for _ in range(2)]
    ended = await asyncio.gather(*both, return_exceptions=True)
    assert [type(each) for each in ended] == [NotInTime, NotInTime]
    work.may_end.set()
    assert await attempts.result("b", work.run, _LONG) == 3
    assert [await attempts.result("a", work.run, _LONG) for _ in range(3)] == [1, 2, 4]


async def test_a_client_that_leaves_ends_its_work() -> None:
    attempts, work = Attempts[int](), _Work()
    await _late(attempts, "a", work)
    second = asyncio.ensure_future(attempts.result("a", work.run, _LONG))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    assert (work.started, work.cancelled) == (1, 1)


async def test_work_that_no_attempt_asks_for_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_MODULE}._RETRY_SECONDS", 0.0)

    attempts, work = Attempts[int](), _Work()
    await _late(attempts, "a", work)
    while not work.cancelled:
        await asyncio.sleep(0)
    work.may_end.set()
    assert await attempts.result("a", work.run, _LONG) == 2


async def test_a_program_that_no_attempt_would_see_is_refused_with_the_time_to_wait() -> None:
    store = SessionStore(ServedSettings(max_running=1, max_queued=10_000))
    app = Starlette(routes=sandbox_fusion_routes(Services(store)))
    app.state.stall_seconds = 1.0
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(50 * store.factory.program_places):
            await stack.enter_async_context(store.queue.admit(ANONYMOUS))
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://server")
        await stack.enter_async_context(client)
        body = {"code": "", "language": "python", "run_timeout": 1, "compile_timeout": 1}
        store.queue.mean_seconds = 1000.0  # each leaves its place after 2 s: all after 100 s
        app.add_middleware(RequestLog)
        answer = await client.post("/run_code", json=body)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "90"), answer.text
    assert answer.json()["error"]["code"] == "TooManyRequests"


async def test_an_equal_request_that_comes_soon_is_no_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{_MODULE}._RETRY_AFTER", _LONG)

    attempts, work = Attempts[int](), _Work()
    await _late(attempts, "a", work)
    work.may_end.set()
    assert await attempts.result("a", work.run, _LONG) == 2
