"""SessionActions: what clients can do with sessions and checkpoints, however they ask for it."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from functools import partial
from uuid import uuid4

from ....errors import CheckpointError, SessionError
from ...owners import Owner
from ...refusals import CheckpointNotFound, InvalidRequest, SessionNotFound
from ...sessions.forks import fork_session
from ...sessions.journal import Action
from ...sessions.session import HostedSession
from ...sessions.store import SessionStore
from .answers import CheckpointInfo, SessionInfo
from .live_run import use_existing
from .live_runs import LiveRuns
from .requests import ForkRequest, NewCheckpoint, NewSession, RestoreRequest

# For the runs of a session to end: after an interrupt, and when they are killed.
_INTERRUPT_SECONDS, _CANCEL_SECONDS = 1.0, 10.0


class SessionActions:
    """Create, copy, set back and end the sessions of an owner.

    Requests that change a session are carried out even if the client goes away meanwhile: half of
    a restore would leave nothing to use. All methods raise `SessionNotFound` if the owner has no
    session with the identifier.
    """

    def __init__(self, store: SessionStore, runs: LiveRuns) -> None:
        self._store, self._runs = store, runs

    async def create(self, owner: Owner, body: NewSession) -> tuple[SessionInfo, bool]:
        """Return a session, and whether it is new."""
        identifier = body.id or _new_id()
        is_new = not self._exists(owner, identifier)
        async with self._store.use(owner, identifier) as session:
            return self._describe(session), is_new

    def list(self, owner: Owner) -> builtins.list[SessionInfo]:
        """Return the sessions of an owner, oldest first."""
        return [self._describe(each) for each in self._store.sessions_of(owner)]

    def get(self, owner: Owner, session_id: str) -> SessionInfo:
        """Return what is known about a session."""
        return self._describe(self._store.find(owner, session_id))

    async def delete(self, owner: Owner, session_id: str) -> None:
        """End a session. Its runs are cancelled, those of other doors too."""
        session = self._store.find(owner, session_id)
        for seconds in (_INTERRUPT_SECONDS, _CANCEL_SECONDS):
            self._cancel_runs(owner, session)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds), session.lock:
                    break  # no run uses the interpreter now
        await self._store.close_session(owner, session.identifier)

    def _cancel_runs(self, owner: Owner, session: HostedSession) -> None:
        found = self._runs.of_session(owner, session.identifier)
        for live in found:
            live.cancel()
        cancelled = {live.run.id for live in found}
        for run in session.runs.values():
            if run.id not in cancelled:
                run.token.cancel()

    async def restart(self, owner: Owner, session_id: str) -> SessionInfo:
        """Delete the variables of a session."""
        async with use_existing(self._store, owner, session_id, Action(name="restart")) as session:
            await self._store.call(session, session.restart)
            return self._describe(session)

    async def fork(self, owner: Owner, session_id: str, body: ForkRequest) -> SessionInfo:
        """Create a session as a copy of another one."""
        new_id = body.id or _new_id()
        if self._exists(owner, new_id):
            raise SessionError(f"There is already a session {new_id!r}. Use another identifier.")
        action = Action(name="fork", target=new_id)
        async with use_existing(self._store, owner, session_id, action) as session:
            if body.checkpoint is not None:
                await _check_checkpoint(session, body.checkpoint)
            await fork_session(
                self._store,
                owner,
                session,
                new_id,
                checkpoint=body.checkpoint,
                end_commands=body.end_commands,
            )
        return self.get(owner, new_id)

    # checkpoints

    async def checkpoint(
        self, owner: Owner, session_id: str, body: NewCheckpoint
    ) -> CheckpointInfo:
        """Save the variables and files of a session."""
        action = Action(name="checkpoint")
        async with use_existing(self._store, owner, session_id, action) as session:
            found = await session.checkpoints()
            if not body.replace and any(each.name == body.name for each in found):
                raise CheckpointError(f"There is already a checkpoint {body.name!r}.")
            try:
                made = await self._store.call(
                    session,
                    lambda: session.checkpoint(**body.model_dump()),
                )
            except ValueError as error:  # the name
                raise InvalidRequest(str(error)) from error
            return CheckpointInfo.of(made)

    async def checkpoints(self, owner: Owner, session_id: str) -> builtins.list[CheckpointInfo]:
        """Return the checkpoints of a session, oldest first."""
        session = self._store.find(owner, session_id)
        return [CheckpointInfo.of(each) for each in await session.checkpoints()]

    async def drop_checkpoint(self, owner: Owner, session_id: str, name: str) -> None:
        """Delete a checkpoint. Raise `CheckpointNotFound`."""
        action = Action(name="checkpoint.delete")
        async with use_existing(self._store, owner, session_id, action) as session:
            await _check_checkpoint(session, name)
            await self._store.call(session, partial(session.drop, name))

    async def restore(self, owner: Owner, session_id: str, body: RestoreRequest) -> SessionInfo:
        """Go back to a checkpoint. Raise `CheckpointNotFound`."""
        async with use_existing(self._store, owner, session_id, Action(name="restore")) as session:
            await _check_checkpoint(session, body.checkpoint)
            restoring = partial(session.restore, body.checkpoint, end_commands=body.end_commands)
            await self._store.call(session, restoring)
            return self._describe(session)

    def _describe(self, session: HostedSession) -> SessionInfo:
        return SessionInfo.of(session, self._store.expires_at(session))

    def _exists(self, owner: Owner, identifier: str) -> bool:
        try:
            self._store.find(owner, identifier)
        except SessionNotFound:
            return False
        return True


async def _check_checkpoint(session: HostedSession, name: str) -> None:
    """Raise `CheckpointNotFound` if the session has no checkpoint with this name."""
    names = [each.name for each in await session.checkpoints()]
    if name not in names:
        known = ", ".join(map(repr, names)) or "none"
        raise CheckpointNotFound(
            f"The session has no checkpoint {name[:128]!r}. Use the name of one of these: {known}."
        )


def _new_id() -> str:
    return f"session-{uuid4().hex[:16]}"
