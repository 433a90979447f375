"""The operations on sessions and their checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from ....errors import CheckpointError, SessionError
from ...http.bodies import read_json
from ...http.services import Services
from ...owners import Owner
from ...refusals import CheckpointNotFound, InvalidRequest, SessionNotFound
from ...sessions.forks import fork_session
from ...sessions.session import HostedSession
from .answers import CheckpointInfo, CheckpointList, SessionInfo, SessionList, answer
from .live_run import use_existing
from .live_runs import LiveRuns
from .requests import ForkRequest, NewCheckpoint, NewSession, RestoreRequest, read_optional

# For the runs of a session to end: after an interrupt, and when they are killed.
_INTERRUPT_SECONDS, _CANCEL_SECONDS = 1.0, 10.0


class SessionOperations:
    """Create, copy, set back and end sessions.

    Requests that change a session are carried out even if the client goes away meanwhile: half of
    a restore would leave nothing to use.
    """

    def __init__(self, services: Services, runs: LiveRuns) -> None:
        self._store, self._runs = services.store, runs
        self._max_bytes = services.store.settings.max_body_bytes

    async def create_session(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions."""
        body = await read_optional(request, NewSession, self._max_bytes)
        identifier = body.id or _new_id()
        is_new = not self._exists(owner, identifier)
        async with self._store.use(owner, identifier) as session:
            return answer(self._describe(session), 201 if is_new else 200)

    async def list_sessions(self, _request: Request, owner: Owner) -> Response:
        """Answer GET sessions."""
        found = self._store.sessions_of(owner)
        return answer(SessionList(sessions=[self._describe(each) for each in found]))

    async def get_session(self, request: Request, owner: Owner) -> Response:
        """Answer GET sessions/ID."""
        return answer(self._describe(self._store.find(owner, _session_id(request))))

    async def delete_session(self, request: Request, owner: Owner) -> Response:
        """Answer DELETE sessions/ID. Its runs are cancelled, those of other doors too."""
        session = self._store.find(owner, _session_id(request))
        for seconds in (_INTERRUPT_SECONDS, _CANCEL_SECONDS):
            self._cancel_runs(owner, session)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds), session.lock:
                    break  # no run uses the interpreter now
        await self._store.close_session(owner, session.identifier)
        return Response(status_code=204)

    def _cancel_runs(self, owner: Owner, session: HostedSession) -> None:
        found = self._runs.of_session(owner, session.identifier)
        for live in found:
            live.cancel()
        cancelled = {live.run.id for live in found}
        for run in session.runs.values():
            if run.id not in cancelled:
                run.token.cancel()

    async def restart_session(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/restart."""
        async with use_existing(self._store, owner, _session_id(request)) as session:
            await self._store.call(session, session.executor.restart)
            return answer(self._describe(session))

    async def fork_session(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/fork."""
        body = await read_optional(request, ForkRequest, self._max_bytes)
        new_id = body.id or _new_id()
        if self._exists(owner, new_id):
            raise SessionError(f"There is already a session {new_id!r}. Use another identifier.")
        async with use_existing(self._store, owner, _session_id(request)) as session:
            if body.checkpoint is not None:
                _check_checkpoint(session, body.checkpoint)
            await fork_session(
                self._store,
                owner,
                session,
                new_id,
                checkpoint=body.checkpoint,
                end_commands=body.end_commands,
            )
        return answer(self._describe(self._store.find(owner, new_id)), 201)

    # checkpoints

    async def create_checkpoint(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/checkpoints."""
        body = await read_optional(request, NewCheckpoint, self._max_bytes)
        async with use_existing(self._store, owner, _session_id(request)) as session:
            source = session.checkpointable
            if not body.replace and any(each.name == body.name for each in source.checkpoints):
                raise CheckpointError(f"There is already a checkpoint {body.name!r}.")
            try:
                made = await self._store.call(
                    session,
                    lambda: session.checkpoint(**body.model_dump()),
                )
            except ValueError as error:  # the name
                raise InvalidRequest(str(error)) from error
            return answer(CheckpointInfo.of(made), 201)

    async def list_checkpoints(self, request: Request, owner: Owner) -> Response:
        """Answer GET sessions/ID/checkpoints."""
        session = self._store.find(owner, _session_id(request))
        found = session.checkpointable.checkpoints
        return answer(CheckpointList(checkpoints=list(map(CheckpointInfo.of, found))))

    async def delete_checkpoint(self, request: Request, owner: Owner) -> Response:
        """Answer DELETE sessions/ID/checkpoints/NAME."""
        name = request.path_params["name"]
        async with use_existing(self._store, owner, _session_id(request)) as session:
            _check_checkpoint(session, name)
            await self._store.call(session, lambda: session.checkpointable.drop(name))
        return Response(status_code=204)

    async def restore_session(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/restore."""
        body = await read_json(request, RestoreRequest, self._max_bytes)
        async with use_existing(self._store, owner, _session_id(request)) as session:
            _check_checkpoint(session, body.checkpoint)
            restoring = partial(session.restore, body.checkpoint, end_commands=body.end_commands)
            await self._store.call(session, restoring)
            return answer(self._describe(session))

    def _describe(self, session: HostedSession) -> SessionInfo:
        return SessionInfo.of(session, self._store.expires_at(session))

    def _exists(self, owner: Owner, identifier: str) -> bool:
        try:
            self._store.find(owner, identifier)
        except SessionNotFound:
            return False
        return True


def _check_checkpoint(session: HostedSession, name: str) -> None:
    """Raise `CheckpointNotFound` if the session has no checkpoint with this name."""
    names = [each.name for each in session.checkpointable.checkpoints]
    if name not in names:
        known = ", ".join(map(repr, names)) or "none"
        raise CheckpointNotFound(
            f"The session has no checkpoint {name[:128]!r}. Use the name of one of these: {known}."
        )


def _session_id(request: Request) -> str:
    identifier: str = request.path_params["session_id"]
    return identifier


def _new_id() -> str:
    return f"session-{uuid4().hex[:16]}"
