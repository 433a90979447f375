"""The playground, and the pages of runs."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from ...blocks import CodeBlock
from ..doors.rest.event_stream import read_position
from ..doors.rest.live_run import LiveRun, LiveRunSettings
from ..doors.rest.live_runs import LiveRuns
from ..doors.rest.requests import NewSession, RunRequest
from ..doors.rest.session_actions import SessionActions
from ..http.services import Services
from ..owners import Owner
from ..refusals import InvalidRequest
from ..sessions.languages import InstalledLanguages, check_language
from ..state.usage import read_usage
from .examples import EXAMPLES
from .forms import read_form, to_model
from .gate import Visitor
from .pages import Pages, path_part, see_other
from .run_stream import stream_run
from .run_views import view_run

_FRESH, _NEW, _EXISTING = "fresh", "new", "session:"


class RunPages:
    """Start runs, and show, follow and cancel them. They continue when nobody looks at them."""

    def __init__(
        self,
        services: Services,
        runs: LiveRuns,
        actions: SessionActions,
        pages: Pages,
        languages: InstalledLanguages,
    ) -> None:
        self._store, self._state = services.store, services.state
        self._runs, self._languages = runs, languages
        self._actions, self._pages = actions, pages

    async def show_playground(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET playground. The query `example` names one whose code is in the form."""
        chosen = request.query_params.get("example")
        return self._pages.answer(
            "playground.html",
            visitor,
            sessions=self._actions.list(visitor.owner),
            place=_NEW,
            code=next((each.code for each in EXAMPLES if each.name == chosen), ""),
            language="python",
            languages=await self._languages.find(),
            examples=EXAMPLES if await self._is_new(visitor.owner) else (),
        )

    async def _is_new(self, owner: Owner) -> bool:
        """Return whether the owner has run nothing yet, as far as is known."""
        if self._actions.list(owner):
            return False
        if self._state is None:
            return True
        usage = await asyncio.to_thread(read_usage, self._state, owner_id=owner.id)
        return not any(each.runs for each in usage)

    async def start_run(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST runs, the form of the playground."""
        fields = await read_form(request, self._store.settings.max_body_bytes)
        place, owner = fields.get("place", _NEW), visitor.owner
        body = _read_run(fields)
        if place == _FRESH:
            session_id = None
        elif place == _NEW:
            session_id = (await self._actions.create(owner, NewSession()))[0].id
        elif place.startswith(_EXISTING):
            session_id = place.removeprefix(_EXISTING)
        else:
            raise InvalidRequest("The field 'place' is not valid. Open the playground again.")
        return await self._start(owner, session_id, body)

    async def start_session_run(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/runs."""
        fields = await read_form(request, self._store.settings.max_body_bytes)
        session_id: str = request.path_params["session_id"]
        return await self._start(visitor.owner, session_id, _read_run(fields))

    async def _start(self, owner: Owner, session_id: str | None, body: RunRequest) -> Response:
        if session_id is not None:
            self._store.find(owner, session_id)
        check_language(body.language)
        settings = LiveRunSettings(
            block=CodeBlock(body.code, body.language), session_id=session_id, is_background=True
        )
        live = self._runs.start(owner, settings)
        await live.wait_until_admitted()
        return see_other(_path_of(live))

    async def show_run(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET runs/ID."""
        live = self._find(request, visitor)
        place = live.settings.session_id
        return self._pages.answer(
            "run.html",
            visitor,
            run=await view_run(live),
            sessions=self._actions.list(visitor.owner),
            place=_FRESH if place is None else f"{_EXISTING}{place}",
            code=live.settings.block.code,
            language=live.settings.block.language,
            languages=await self._languages.find(),
        )

    async def follow_run(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET runs/ID/events, which only the script of the console requests."""
        return stream_run(self._find(request, visitor), read_position(request))

    async def cancel_run(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST runs/ID/cancel."""
        live = self._find(request, visitor)
        await live.cancel_and_wait()
        return see_other(_path_of(live))

    def _find(self, request: Request, visitor: Visitor) -> LiveRun:
        return self._runs.find(visitor.owner, request.path_params["run_id"])


def _read_run(fields: dict[str, str]) -> RunRequest:
    return to_model(
        RunRequest, code=fields.get("code", ""), language=fields.get("language", "python")
    )


def _path_of(live: LiveRun) -> str:
    """Return the path of the page that shows a run, and where it is there."""
    session_id, run_id = live.settings.session_id, path_part(live.run.id)
    if session_id is None:
        return f"/runs/{run_id}#run-{run_id}"
    return f"/sessions/{path_part(session_id)}?code_of={run_id}#run-{run_id}"
