"""The operations that run code and commands, in both dialects."""

from __future__ import annotations

import shlex

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....blocks import CodeBlock
from ...http.bodies import read_json
from ...http.disconnect import run_while_connected
from ...http.services import Services
from ...owners import Owner
from ...refusals import InvalidRequest, RunNotFound
from ...sessions.session import SessionRun
from . import answers
from .requests import NewBody, OldBody, Query, read_query

_SHELL = "bash"


class Executions:
    """Run code in a session, and describe runs."""

    def __init__(self, services: Services) -> None:
        self._store = services.store

    async def execute(self, request: Request, owner: Owner) -> Response:
        """Answer POST code/execute."""
        query = read_query(request)
        body = await read_json(request, OldBody, self._store.settings.max_body_bytes)
        code = body.properties
        code.is_asynchronous()  # the service refuses unknown values; the old dialect always waits
        block, run = CodeBlock(code.source(), "python"), SessionRun()
        work = self._store.run_in(owner, query.identifier, block, run, code.timeout_seconds)
        result = await run_while_connected(request, work)
        return JSONResponse(answers.old_run(result), headers=_headers(run))

    async def create(self, request: Request, owner: Owner) -> Response:
        """Answer POST executions: run code or a command, now or in the background."""
        query = read_query(request)
        body = await read_json(request, NewBody, self._store.settings.max_body_bytes)
        if body.use_empty_kernel:
            raise InvalidRequest("useEmptyKernel is not supported. Use another identifier.")
        block = _block(body)
        run = SessionRun(language=block.language, is_asynchronous=body.is_asynchronous())
        if run.is_asynchronous:
            await self._store.start_run(owner, query.identifier, block, run, body.timeout_seconds)
        else:
            work = self._store.run_in(owner, query.identifier, block, run, body.timeout_seconds)
            await run_while_connected(request, work)
        answer = _describe(query, run, body.max_output)
        return JSONResponse(
            answer,
            202 if run.is_asynchronous else 200,
            {**_headers(run), "Operation-Location": _location(request, run)},
        )

    async def describe(self, request: Request, owner: Owner) -> Response:
        """Answer GET executions/ID."""
        query = read_query(request)
        session = self._store.find(owner, query.identifier)
        run = session.runs.get(request.path_params["id"])
        if run is None:
            raise RunNotFound(f"The session has no execution {request.path_params['id'][:100]!r}.")
        return JSONResponse(_describe(query, run, None), headers=_headers(run))


def _block(body: NewBody) -> CodeBlock:
    if body.kind == "code":
        return CodeBlock(body.source(), "python")
    if body.shell_command is not None and body.command is not None:
        raise InvalidRequest("Send either 'shellCommand' or 'execCommandAndArgs'.")
    command = shlex.join(body.command) if body.command else body.shell_command or ""
    if body.stdin:
        command = f"printf %s {shlex.quote(body.stdin)} | {{\n{command}\n}}"
    return CodeBlock(command, _SHELL)


def _describe(query: Query, run: SessionRun, max_output: int | None) -> dict[str, object]:
    return answers.new_run(query, run, is_shell=run.language == _SHELL, max_output=max_output)


def _headers(run: SessionRun) -> dict[str, str]:
    """Return the headers with the times of a run, in milliseconds."""
    headers = {"operation-id": run.id}
    if run.result is not None:
        own = answers.milliseconds(run.result)
        headers["x-ms-container-execution-duration"] = str(own)
        headers["x-ms-overall-execution-time"] = str(own + round(run.queue_seconds * 1000))
    return headers


def _location(request: Request, run: SessionRun) -> str:
    return str(request.url.replace(path=f"{request.url.path.rstrip('/')}/{run.id}"))
