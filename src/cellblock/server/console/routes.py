"""The paths of the console, below /console, and its static files."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from ..doors.rest.live_runs import LiveRuns
from ..doors.rest.session_actions import SessionActions
from ..http.endpoints import match_newlines
from ..http.services import Services
from ..refusals import PageNotFound
from ..sessions.languages import InstalledLanguages
from .endpoints import ConsoleEndpoints
from .file_pages import FilePages
from .gate import PREFIX, Gate, Visitor
from .headers import SecurityHeaders
from .key_pages import KeyPages
from .pages import FOLDER, Pages, see_other
from .record_pages import RecordPages
from .run_pages import RunPages
from .session_pages import SessionPages
from .sign_in_pages import SignInPages

_COMPRESSION = Middleware(GZipMiddleware)
_FOLDER = "codemirror"  # which `scripts/vendor-codemirror` makes
_IMPORT = re.compile(r"^((?:import|export) .*?from )'([^'.][^']*)';$", re.MULTILINE)
_ADDRESS = rf"\1'{PREFIX}/static/{_FOLDER}/\2.js';"
_SESSION = "/sessions/{session_id}"


def console_routes(services: Services, runs: LiveRuns, actions: SessionActions) -> list[BaseRoute]:
    """Return the routes of the console."""
    gate, pages = Gate(services), Pages()
    endpoints = ConsoleEndpoints(services, gate, pages)
    page, sign_in = endpoints.route, SignInPages(gate, pages)
    languages = InstalledLanguages(services.store.factory)
    run = RunPages(services, runs, actions, pages, languages)
    session = SessionPages(services, runs, actions, pages, languages)
    key = KeyPages(services, pages)
    file, record = FilePages(services), RecordPages(services, pages)

    async def show_home(_request: Request, _visitor: Visitor) -> Response:
        return see_other("/playground")

    async def show_missing(_request: Request, _visitor: Visitor) -> Response:
        raise PageNotFound("The console has no such page. Choose one above.")

    routes: list[BaseRoute] = [
        Mount("/static", StaticModules(directory=FOLDER / "static"), middleware=[_COMPRESSION]),
        page("GET", "/", show_home),
        endpoints.open_route("GET", "/sign-in", sign_in.show_sign_in),
        endpoints.open_route("POST", "/sign-in", sign_in.sign_in),
        page("POST", "/sign-out", sign_in.sign_out),
        page("GET", "/playground", run.show_playground),
        page("POST", "/runs", run.start_run),
        page("GET", "/runs/{run_id}", run.show_run),
        page("GET", "/runs/{run_id}/events", run.follow_run),
        page("POST", "/runs/{run_id}/cancel", run.cancel_run),
        page("GET", "/sessions", session.show_sessions),
        page("POST", "/sessions", session.create_session),
        page("GET", _SESSION, session.show_session),
        page("GET", f"{_SESSION}/state", session.show_state),
        page("GET", f"{_SESSION}/runs", session.list_runs),
        page("POST", f"{_SESSION}/runs", run.start_session_run),
        page("POST", f"{_SESSION}/complete", session.complete_code),
        page("POST", f"{_SESSION}/files", file.upload_files),
        page("GET", f"{_SESSION}/files/{{path:path}}", file.download_file),
        page("POST", f"{_SESSION}/delete-file", file.delete_file),
        page("POST", f"{_SESSION}/checkpoint", session.create_checkpoint),
        page("POST", f"{_SESSION}/restore", session.restore_session),
        page("POST", f"{_SESSION}/drop", session.drop_checkpoint),
        page("POST", f"{_SESSION}/fork", session.fork_session),
        page("POST", f"{_SESSION}/restart", session.restart_session),
        page("POST", f"{_SESSION}/end", session.end_session),
        page("GET", f"{_SESSION}/{{action}}", session.confirm),
        page("GET", "/usage", record.show_usage),
        page("GET", "/log", record.show_log),
        page("GET", "/keys", key.show_keys),
        page("POST", "/keys", key.add_key),
        page("GET", "/keys/{key_id}", key.edit_key),
        page("POST", "/keys/{key_id}", key.change_key),
        page("GET", "/keys/{key_id}/revoke", key.confirm_revoke),
        page("POST", "/keys/{key_id}/revoke", key.revoke_key),
        page("GET", "/{path:path}", show_missing),
    ]
    mount = Mount(PREFIX, routes=routes, middleware=[Middleware(SecurityHeaders)])
    return [match_newlines(mount)]


class StaticModules(StaticFiles):
    """Static files. Browsers ask each time whether one has changed.

    The modules of CodeMirror import each other by the names of their packages. Browsers cannot find
    them by name without an inline script, which the content policy forbids: names become addresses.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the answer to a request for the file at `path`."""
        answer = await super().get_response(path, scope)
        if path.startswith(f"{_FOLDER}/") and isinstance(answer, FileResponse):
            text = await asyncio.to_thread(Path(answer.path).read_text, "utf-8")
            headers = {name: answer.headers[name] for name in ("etag", "last-modified")}
            answer = Response(_IMPORT.sub(_ADDRESS, text), 200, headers, "text/javascript")
        answer.headers["cache-control"] = "no-cache"
        return answer
