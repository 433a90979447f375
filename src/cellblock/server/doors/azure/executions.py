"""The operations that run code and commands, in both dialects."""

from __future__ import annotations

import re
import shlex

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....blocks import CodeBlock
from ...http.bodies import read_json
from ...http.disconnect import run_while_connected
from ...http.services import Services
from ...owners import Owner
from ...refusals import InvalidRequest, RunIdReused, RunNotFound, SessionNotFound
from ...sessions.session import SessionRun
from . import answers
from .requests import Code, NewBody, OldBody, Query, read_query

_SHELL = "bash"
_OPERATION_ID = "operation-id"
_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Executions:
    """Run code in a session, and describe runs."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        # By owner, session and ID: runs whose session does not know them yet.
        self._starting = dict[tuple[str, str, str], SessionRun]()

    async def execute(self, request: Request, owner: Owner) -> Response:
        """Answer POST code/execute."""
        query = read_query(request)
        body = await read_json(request, OldBody, self._store.settings.max_body_bytes)
        code = body.properties
        code.is_asynchronous()  # the service refuses unknown values; the old dialect always waits
        block = CodeBlock(code.source(), "python")
        run = await self._run(request, owner, query, block, code)
        if run.result is None:
            raise SessionNotFound(run.failure)
        return JSONResponse(answers.old_run(run.result), headers=_headers(run))

    async def create(self, request: Request, owner: Owner) -> Response:
        """Answer POST executions: run code or a command, now or in the background."""
        query = read_query(request)
        body = await read_json(request, NewBody, self._store.settings.max_body_bytes)
        if body.use_empty_kernel:
            raise InvalidRequest("useEmptyKernel is not supported. Use another identifier.")
        run = await self._run(request, owner, query, _block(body), body)
        answer = _describe(query, run, body.max_output)
        return JSONResponse(
            answer,
            202 if run.is_asynchronous else 200,
            {**_headers(run), "Operation-Location": _location(request, run)},
        )

    async def _run(
        self, request: Request, owner: Owner, query: Query, block: CodeBlock, code: Code
    ) -> SessionRun:
        """Run a block, and return it at its end, or at its start if it is asynchronous.

        If the client has chosen its ID, the run continues without it, and a retry finds it.
        """
        is_asynchronous = isinstance(code, NewBody) and code.is_asynchronous()
        run = SessionRun(language=block.language, is_asynchronous=is_asynchronous)
        if (operation_id := request.headers.get(_OPERATION_ID)) is not None:
            run.id, run.request = _check_id(operation_id), code
            run = await self._start_or_find(owner, query.identifier, block, run, code)
        elif is_asynchronous:
            await self._store.start_run(owner, query.identifier, block, run, code.timeout_seconds)
        else:
            work = self._store.run_in(owner, query.identifier, block, run, code.timeout_seconds)
            await run_while_connected(request, work)
            return run
        if not is_asynchronous:
            await run_while_connected(request, run.ended.wait())
        return run

    async def _start_or_find(
        self, owner: Owner, identifier: str, block: CodeBlock, run: SessionRun, code: Code
    ) -> SessionRun:
        """Start a run, or return the one that the same request has started before."""
        key = owner.id, identifier, run.id
        earlier = self._starting.get(key) or self._find(owner, identifier, run.id)
        if earlier is None:
            self._starting[key] = run
            try:
                await self._store.start_run(owner, identifier, block, run, code.timeout_seconds)
            finally:
                del self._starting[key]
            return run
        if earlier.request != code:
            raise RunIdReused(
                f"The session has another execution {run.id!r}. Send a new operation-id."
            )
        return earlier

    def _find(self, owner: Owner, identifier: str, run_id: str) -> SessionRun | None:
        try:
            return self._store.find(owner, identifier).runs.get(run_id)
        except SessionNotFound:
            return None

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


def _check_id(operation_id: str) -> str:
    if not _ID.fullmatch(operation_id):
        raise InvalidRequest(
            "The header operation-id has 1 to 128 letters, digits, dots, dashes and underscores."
        )
    return operation_id


def _describe(query: Query, run: SessionRun, max_output: int | None) -> dict[str, object]:
    return answers.new_run(query, run, is_shell=run.language == _SHELL, max_output=max_output)


def _headers(run: SessionRun) -> dict[str, str]:
    """Return the headers with the times of a run, in milliseconds."""
    headers = {_OPERATION_ID: run.id}
    if run.result is not None:
        own = answers.milliseconds(run.result)
        headers["x-ms-container-execution-duration"] = str(own)
        headers["x-ms-overall-execution-time"] = str(own + round(run.queue_seconds * 1000))
    return headers


def _location(request: Request, run: SessionRun) -> str:
    return str(request.url.replace(path=f"{request.url.path.rstrip('/')}/{run.id}"))
