"""The pages of sessions: all of a key, and one with its runs, files and checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...blocks import CodeBlock
from ..doors.rest.live_run import LiveRun, use_existing
from ..doors.rest.live_runs import LiveRuns
from ..doors.rest.requests import ForkRequest, NewCheckpoint, NewSession, RestoreRequest
from ..doors.rest.session_actions import SessionActions
from ..http.services import Services
from ..owners import Owner
from ..refusals import PageNotFound, RunNotFound
from ..sessions.files import FileInfo
from ..sessions.languages import InstalledLanguages
from ..sessions.session import SessionRun
from .checkpoint_tree import CheckpointNode, checkpoint_tree
from .forms import read_form, to_model
from .gate import Visitor
from .pages import Filters, Pages, path_part, read_number, see_other
from .run_views import RunView, describe, describe_other, view_other_run, view_run

_MAX_FORM_BYTES = 1 << 16
_MAX_RUNS = 20  # in a page
_MAX_FILES = 500
_MAX_MATCHES = 500
_MAX_SESSIONS = 50
_STATES = {"running": True, "idle": False}
_CONFIRMED = ("restore", "fork", "drop", "restart", "end")


@dataclass(frozen=True)
class SessionContent:
    """What a session has: its first files, how many there are, and its checkpoints."""

    files: list[FileInfo]
    file_count: int
    tree: CheckpointNode


class SessionPages:
    """Show sessions and what can be done with them."""

    def __init__(
        self,
        services: Services,
        runs: LiveRuns,
        actions: SessionActions,
        pages: Pages,
        languages: InstalledLanguages,
    ) -> None:
        self._store, self._runs, self._languages = services.store, runs, languages
        self._actions, self._pages = actions, pages

    async def show_sessions(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET sessions: a page of those that the form above chooses, newest first."""
        owner = visitor.owner
        filters = Filters.read(request, "text", "state")
        text, is_busy = filters.get("text").casefold(), _STATES.get(filters.get("state"))
        sessions = self._actions.list(owner)[::-1]
        counts = {each.id: self._count_runs(owner, each.id) for each in sessions}
        found = [
            each
            for each in sessions
            if text in each.id.casefold() and is_busy in (None, counts[each.id] > 0)
        ]
        others = [
            each
            for each in reversed(await self._store.journal.others(owner))
            if text in f"{each.identifier} {each.server}".casefold()
        ]
        paging = filters.of(len(found), _MAX_SESSIONS)
        return self._pages.answer(
            "sessions.html",
            visitor,
            sessions=found[paging.start :][:_MAX_SESSIONS],
            counts=counts,
            others=others[:_MAX_SESSIONS],
            hidden_others=len(others[_MAX_SESSIONS:]),
            filters=filters,
            paging=paging,
        )

    def _count_runs(self, owner: Owner, session_id: str) -> int:
        """Return how many runs of a session wait or have not ended."""
        known, live = self._runs_of(owner, session_id)
        count = sum(not each.is_done for each in live.values())
        return count + sum(not run.is_over for name, run in known.items() if name not in live)

    async def create_session(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions."""
        fields = await read_form(request, _MAX_FORM_BYTES)
        body = to_model(NewSession, id=fields.get("id", "").strip() or None)
        made, _ = await self._actions.create(visitor.owner, body)
        return _to_session(made.id)

    async def show_session(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET sessions/ID. The query `code_of` names a run whose code is in the form."""
        owner, session_id = visitor.owner, _session_id(request)
        session = self._actions.get(owner, session_id)
        block = self._find_code(owner, request.query_params.get("code_of", ""))
        views, hidden = await self._view_runs(owner, session_id)
        return self._pages.answer(
            "session.html",
            visitor,
            session=session,
            runs=views,
            hidden_runs=hidden,
            code=block.code,
            language=block.language,
            languages=await self._languages.find(),
            state=await self._state(owner, session_id),
        )

    async def _view_runs(self, owner: Owner, session_id: str) -> tuple[list[RunView], int]:
        """Return the newest runs of all doors, newest first, and how many there are besides."""
        known, live = self._runs_of(owner, session_id)
        names = _newest_first(known, live)
        views = [
            await (
                view_run(live[name]) if name in live else view_other_run(session_id, known[name])
            )
            for name in names[:_MAX_RUNS]
        ]
        return views, len(names[_MAX_RUNS:])

    async def list_runs(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET sessions/ID/runs: the states of the newest runs, for the script."""
        owner, session_id = visitor.owner, _session_id(request)
        known, live = self._runs_of(owner, session_id)
        states = {
            name: (describe(live[name]) if name in live else describe_other(known[name]))[0]
            for name in _newest_first(known, live)[:_MAX_RUNS]
        }
        return JSONResponse(states)

    async def complete_code(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/complete, for the script: what can stand at the cursor.

        While code runs, nothing can: the script does not wait for the interpreter.
        """
        fields = await read_form(request, self._store.settings.max_body_bytes)
        code, start, matches = fields.get("code", ""), 0, list[str]()
        cursor, owner = read_number(fields.get("cursor", "0")), visitor.owner
        async with use_existing(self._store, owner, _session_id(request)) as session:
            if session.is_live and not session.lock.locked():
                cursor = min(cursor, len(code))
                start, matches = await self._store.complete(owner, session, code, cursor)
        return JSONResponse({"start": start, "matches": matches[:_MAX_MATCHES]})

    def _runs_of(
        self, owner: Owner, session_id: str
    ) -> tuple[dict[str, SessionRun], dict[str, LiveRun]]:
        """Return the runs of all doors in a session, and those whose events are kept."""
        live = {each.run.id: each for each in self._runs.of_session(owner, session_id)}
        return dict(self._store.find(owner, session_id).runs), live

    def _find_code(self, owner: Owner, run_id: str) -> CodeBlock:
        """Return the code of a run; nothing if it is forgotten by now."""
        with contextlib.suppress(RunNotFound):
            return self._runs.find(owner, run_id).settings.block
        return CodeBlock("", "python")

    async def show_state(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET sessions/ID/state: what the script of the console replaces in the page."""
        owner, session_id = visitor.owner, _session_id(request)
        return self._pages.answer(
            "session_state.html",
            visitor,
            session=self._actions.get(owner, session_id),
            state=await self._state(owner, session_id),
        )

    async def _state(self, owner: Owner, session_id: str) -> SessionContent:
        async with use_existing(self._store, owner, session_id) as session:
            found = await session.files.list_folder(recursive=True)
            existing = {each.identifier for each in self._store.sessions_of(owner)}
            tree = checkpoint_tree(session.lineage, await session.checkpoints(), existing)
        files: list[FileInfo] = [each for each in found if not each.is_folder]
        return SessionContent(files[:_MAX_FILES], len(files), tree)

    async def confirm(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET sessions/ID/ACTION: ask before something is lost, or for a name."""
        session = self._actions.get(visitor.owner, _session_id(request))
        action = request.path_params["action"]
        if action not in _CONFIRMED:
            raise PageNotFound("The console has no such page. Choose one above.")
        return self._pages.answer(
            "confirm.html",
            visitor,
            session=session,
            action=action,
            checkpoint=request.query_params.get("checkpoint", ""),
        )

    async def end_session(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/end."""
        await self._actions.delete(visitor.owner, _session_id(request))
        return see_other("/sessions")

    async def restart_session(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/restart."""
        session_id = _session_id(request)
        await self._actions.restart(visitor.owner, session_id)
        return _to_session(session_id)

    async def fork_session(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/fork."""
        fields = await read_form(request, _MAX_FORM_BYTES)
        body = to_model(
            ForkRequest,
            id=fields.get("id", "").strip() or None,
            checkpoint=fields.get("checkpoint") or None,
            end_commands="end_commands" in fields,
        )
        made = await self._actions.fork(visitor.owner, _session_id(request), body)
        return _to_session(made.id)

    # checkpoints

    async def create_checkpoint(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/checkpoint."""
        fields, session_id = await read_form(request, _MAX_FORM_BYTES), _session_id(request)
        body = to_model(
            NewCheckpoint,
            name=fields.get("name", "").strip() or None,
            end_commands="end_commands" in fields,
        )
        await self._actions.checkpoint(visitor.owner, session_id, body)
        return _to_session(session_id, "checkpoints")

    async def restore_session(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/restore."""
        fields, session_id = await read_form(request, _MAX_FORM_BYTES), _session_id(request)
        body = to_model(
            RestoreRequest,
            checkpoint=fields.get("checkpoint", ""),
            end_commands="end_commands" in fields,
        )
        await self._actions.restore(visitor.owner, session_id, body)
        return _to_session(session_id, "checkpoints")

    async def drop_checkpoint(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/drop."""
        fields, session_id = await read_form(request, _MAX_FORM_BYTES), _session_id(request)
        name = fields.get("checkpoint", "")
        await self._actions.drop_checkpoint(visitor.owner, session_id, name)
        return _to_session(session_id, "checkpoints")


def _newest_first(known: Iterable[str], live: Iterable[str]) -> list[str]:
    """Return the IDs of all runs. Those that only `live` has wait for a place in the queue."""
    return list(dict.fromkeys([*known, *live]))[::-1]


def _session_id(request: Request) -> str:
    identifier: str = request.path_params["session_id"]
    return identifier


def _to_session(session_id: str, section: str = "") -> Response:
    return see_other(f"/sessions/{path_part(session_id)}" + (f"#{section}" if section else ""))
