"""Fork a session of the store into another one of the same owner."""

from __future__ import annotations

from functools import partial

from ..owners import Owner
from ..refusals import InvalidRequest, Refusal
from .session import HostedSession
from .store import SessionStore


async def fork_session(
    store: SessionStore,
    owner: Owner,
    session: HostedSession,
    identifier: str,
    *,
    checkpoint: str | None = None,
    end_commands: bool = False,
) -> None:
    """Create the session `identifier` as a copy of `session`, or of its checkpoint.

    Raise `InvalidRequest` if the owner already has a session `identifier`, `SessionElsewhere` if it
    is on another server, `TooManySessions`, `Draining`, and `CheckpointError`.
    """
    _check(store, owner, identifier)
    forking = partial(session.fork, checkpoint, end_commands=end_commands)
    async with store.reserve(owner, identifier) as session_id:
        branch = await store.call(session, forking)
        try:
            _check(store, owner, identifier)  # a concurrent request may have been faster
        except Refusal:
            await store.factory.release(branch, is_idle=False)
            raise
        store.add(owner, identifier, branch, session_id)
    session.lineage.add_fork(identifier, checkpoint)
    async with store.use(owner, identifier):
        pass  # leaving it sets the time at which it expires


def _check(store: SessionStore, owner: Owner, identifier: str) -> None:
    if any(each.identifier == identifier for each in store.sessions_of(owner)):
        raise InvalidRequest(
            f"There is already a session {identifier!r}. Reset it first, or use another identifier."
        )
    store.check_room(owner)
