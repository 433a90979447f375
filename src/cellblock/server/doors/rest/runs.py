"""The operations on runs: start, describe, follow and cancel them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ....blocks import CodeBlock
from ...http.bodies import read_json
from ...http.disconnect import run_while_connected
from ...http.services import Services
from ...owners import Owner
from ...sessions.fresh_runs import judge_fresh
from ...sessions.languages import check_language
from ...sessions.run_queue import CpuPlace, CpuPlaces
from .answers import RunList, VerdictInfo, answer
from .event_stream import EventStream, read_position
from .live_run import LiveRun, LiveRunSettings
from .live_runs import LiveRuns
from .requests import ProgramRequest, RunRequest, read_idempotency_key


class RunOperations:
    """Run code in a session, or in a new one for this run."""

    def __init__(self, services: Services, runs: LiveRuns) -> None:
        self._store, self._runs = services.store, runs
        self._judge_places = CpuPlaces(self._store.factory.program_places)

    async def run_once(self, request: Request, owner: Owner) -> Response:
        """Answer POST runs."""
        return await self._run(request, owner, None)

    async def run_in_session(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/runs."""
        return await self._run(request, owner, request.path_params["session_id"])

    async def judge_program(self, request: Request, owner: Owner) -> Response:
        """Answer POST verdicts. Programs run one on each CPU, to be judged by their CPU time."""
        body = await read_json(request, ProgramRequest, self._store.settings.max_body_bytes)
        place = CpuPlace(self._judge_places)
        work = judge_fresh(self._store, owner, body.program(), body.limits, place)
        return answer(VerdictInfo.of(await run_while_connected(request, work)))

    async def list_runs(self, request: Request, owner: Owner) -> Response:
        """Answer GET sessions/ID/runs."""
        session_id = request.path_params["session_id"]
        self._store.find(owner, session_id)
        found = self._runs.of_session(owner, session_id)
        return answer(RunList(runs=[live.info() for live in found]))

    async def get_run(self, request: Request, owner: Owner) -> Response:
        """Answer GET runs/ID."""
        return answer(self._find(request, owner).info())

    async def stream_events(self, request: Request, owner: Owner) -> Response:
        """Answer GET runs/ID/events. Status 204 tells browsers not to connect again."""
        live, after = self._find(request, owner), read_position(request)
        if live.is_done and after >= len(live.events):
            return Response(status_code=204)
        return EventStream(live, after)

    async def cancel_run(self, request: Request, owner: Owner) -> Response:
        """Answer POST runs/ID/cancel."""
        live = self._find(request, owner)
        await live.cancel_and_wait()
        return answer(live.info())

    def _find(self, request: Request, owner: Owner) -> LiveRun:
        return self._runs.find(owner, request.path_params["run_id"])

    async def _run(self, request: Request, owner: Owner, session_id: str | None) -> Response:
        key = read_idempotency_key(request)
        if session_id is not None and key is None:  # a retried run may have outlived its session
            self._store.find(owner, session_id)
        body = await read_json(request, RunRequest, self._store.settings.max_body_bytes)
        check_language(body.language)
        settings = LiveRunSettings(
            block=CodeBlock(body.code, body.language),
            session_id=session_id,
            run_seconds=body.timeout_seconds,
            is_background=body.background,
            key=key,
        )
        retried = self._runs.find_retried(owner, settings)
        live = retried or self._runs.start(owner, settings)
        response = await _respond(request, live, is_stream=body.stream)
        if retried is not None:
            response.headers["Idempotent-Replayed"] = "true"
        return response


async def _respond(request: Request, live: LiveRun, *, is_stream: bool) -> Response:
    if not is_stream and not live.settings.is_background:
        return await _wait(request, live)
    with live.reading():
        await live.wait_until_admitted()
    if is_stream:
        return EventStream(live)
    return answer(live.info(), 202, {"Location": f"/v1/runs/{live.run.id}"})


async def _wait(request: Request, live: LiveRun) -> Response:
    """Answer when a run has ended. Cancel it if the client goes away, and cannot come back."""
    if live.settings.key is not None:
        with live.reading():
            await run_while_connected(request, live.wait())
    else:
        try:
            await run_while_connected(request, live.wait())
        finally:
            live.abandon()
    live.check()
    return answer(live.info())
