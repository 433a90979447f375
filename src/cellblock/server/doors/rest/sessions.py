"""The operations on sessions and their checkpoints."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ...http.bodies import read_json
from ...http.services import Services
from ...owners import Owner
from .answers import CheckpointList, SessionInfo, SessionList, answer
from .requests import ForkRequest, NewCheckpoint, NewSession, RestoreRequest, read_optional
from .session_actions import SessionActions


class SessionOperations:
    """Create, copy, set back and end sessions."""

    def __init__(self, services: Services, actions: SessionActions) -> None:
        self._actions, self._journal = actions, services.store.journal
        self._max_bytes = services.store.settings.max_body_bytes

    async def create_session(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions."""
        body = await read_optional(request, NewSession, self._max_bytes)
        made, is_new = await self._actions.create(owner, body)
        return answer(made, 201 if is_new else 200)

    async def list_sessions(self, _request: Request, owner: Owner) -> Response:
        """Answer GET sessions."""
        others = await self._journal.others(owner)
        remote = [SessionInfo.of_remote(each) for each in others]
        return answer(SessionList(sessions=[*self._actions.list(owner), *remote]))

    async def get_session(self, request: Request, owner: Owner) -> Response:
        """Answer GET sessions/ID."""
        return answer(self._actions.get(owner, _session_id(request)))

    async def delete_session(self, request: Request, owner: Owner) -> Response:
        """Answer DELETE sessions/ID."""
        await self._actions.delete(owner, _session_id(request))
        return Response(status_code=204)

    async def restart_session(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/restart."""
        return answer(await self._actions.restart(owner, _session_id(request)))

    async def fork_session(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/fork."""
        body = await read_optional(request, ForkRequest, self._max_bytes)
        return answer(await self._actions.fork(owner, _session_id(request), body), 201)

    # checkpoints

    async def create_checkpoint(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/checkpoints."""
        body = await read_optional(request, NewCheckpoint, self._max_bytes)
        return answer(await self._actions.checkpoint(owner, _session_id(request), body), 201)

    async def list_checkpoints(self, request: Request, owner: Owner) -> Response:
        """Answer GET sessions/ID/checkpoints."""
        found = await self._actions.checkpoints(owner, _session_id(request))
        return answer(CheckpointList(checkpoints=found))

    async def delete_checkpoint(self, request: Request, owner: Owner) -> Response:
        """Answer DELETE sessions/ID/checkpoints/NAME."""
        name = request.path_params["name"]
        await self._actions.drop_checkpoint(owner, _session_id(request), name)
        return Response(status_code=204)

    async def restore_session(self, request: Request, owner: Owner) -> Response:
        """Answer POST sessions/ID/restore."""
        body = await read_json(request, RestoreRequest, self._max_bytes)
        return answer(await self._actions.restore(owner, _session_id(request), body))


def _session_id(request: Request) -> str:
    identifier: str = request.path_params["session_id"]
    return identifier
