"""The paths of the console, below /console."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

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
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
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
