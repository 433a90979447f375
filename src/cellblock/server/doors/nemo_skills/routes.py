"""POST /execute, GET /sessions and DELETE /sessions/ID."""

from __future__ import annotations

import os
import shlex

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from ....blocks import CodeBlock
from ....results import CodeResult
from ...http.bodies import read_json
from ...http.disconnect import run_while_connected
from ...http.endpoints import Endpoints
from ...http.services import Services
from ...owners import Owner
from ...refusals import InvalidRequest, SessionNotFound
from ...sessions.fresh_runs import fresh_programs
from ...sessions.languages import refuse_language
from ...sessions.run_queue import CpuPlace, CpuPlaces
from ...sessions.session import SessionRun
from .messages import ExecuteRequest, answer, error_answer

_SESSION_HEADER = "x-session-id"
_MAX_ID_LENGTH = 128
_MAX_ARGUMENT = 120_000  # bytes of one argument; Linux allows 128 KiB
_PROGRAMS = {"python": "python", "python3": "python", "pypy3": "pypy3"}


def nemo_skills_routes(services: Services) -> list[BaseRoute]:
    """Return the routes of the door."""
    door = LocalSandbox(services)
    make = Endpoints(services, "nemo_skills", error_answer).route
    return [
        make("POST", "/execute", door.execute),
        make("GET", "/sessions", door.list_sessions),
        make("DELETE", "/sessions/{id}", door.delete_session),
    ]


class LocalSandbox:
    """Run IPython cells in sessions, and each program in a new session."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._places = CpuPlaces(os.cpu_count() or 1)

    async def execute(self, request: Request, owner: Owner) -> Response:
        """Answer POST /execute."""
        body = await read_json(request, ExecuteRequest, self._store.settings.max_body_bytes)
        if body.language != "ipython":
            result = await run_while_connected(request, self._run_program(owner, body))
            return JSONResponse(answer(result, body))
        identifier = _session_id(request)
        is_new = not self._exists(owner, identifier)
        block = CodeBlock(body.generated_code, "python")
        run = SessionRun(terminal_mode=body.traceback_verbosity)
        work = self._store.run_in(owner, identifier, block, run, body.timeout)
        result = await run_while_connected(request, work)
        return JSONResponse(answer(result, body, is_new=is_new or result.lost_blocks > 0))

    async def list_sessions(self, _request: Request, owner: Owner) -> Response:
        """Answer GET /sessions."""
        sessions = {
            each.identifier: {
                "backend": "ipython",
                "created": each.created_at,
                "last_used": each.last_used_at,
                "alive": True,
            }
            for each in self._store.sessions_of(owner)
        }
        return JSONResponse({"sessions": sessions, "backend": "ipython"})

    async def delete_session(self, request: Request, owner: Owner) -> Response:
        """Answer DELETE /sessions/ID."""
        identifier = request.path_params["id"]
        await self._store.close_session(owner, identifier)
        return JSONResponse({"message": f"IPython session {identifier} deleted successfully"})

    def _exists(self, owner: Owner, identifier: str) -> bool:
        try:
            self._store.find(owner, identifier)
        except SessionNotFound:
            return False
        return True

    async def _run_program(self, owner: Owner, body: ExecuteRequest) -> CodeResult:
        place = CpuPlace(self._places)
        async with fresh_programs(self._store, owner, body.language, place) as (_, execute):
            return await execute(CodeBlock(_script(body), "bash"), body.timeout)


def _script(body: ExecuteRequest) -> str:
    """Return the shell script that runs a program, or the command itself."""
    if body.language == "shell":
        return body.generated_code
    if body.language == "lean4":
        raise refuse_language(body.language, ("ipython", *_PROGRAMS, "shell"))
    code, text = shlex.quote(body.generated_code), shlex.quote(body.std_input)
    # `printf` is part of the shell, so the text has no limit of length. An argument has one: longer
    # code is passed in a descriptor.
    is_long = len(body.generated_code.encode(errors="replace")) > _MAX_ARGUMENT
    source = f"/dev/fd/3 3< <(printf %s {code})" if is_long else f"-c {code}"
    return f"{_PROGRAMS[body.language]} {source} < <(printf %s {text})\n"


def _session_id(request: Request) -> str:
    identifier = request.headers.get(_SESSION_HEADER, "")
    if not identifier or len(identifier) > _MAX_ID_LENGTH:
        raise InvalidRequest(
            f"IPython needs the header X-Session-ID with 1 to {_MAX_ID_LENGTH} characters."
        )
    return identifier
