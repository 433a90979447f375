"""Who calls a tool, on which session store, and what it is told about errors."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from ....errors import CellblockError
from ...owners import ANONYMOUS, Owner
from ...refusals import SessionNotFound, TooManySessions
from ...sessions.journal import Action
from ...sessions.session import HostedSession
from ...sessions.store import SessionStore

# Returns the store when it has started.
StoreSource = Callable[[], Awaitable[SessionStore]]

DEFAULT_SESSION = "default"
SessionId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=128,
        description="The session to use. It is created on first use. Each session has its own "
        "variables and files.",
    ),
]
ExistingSessionId = Annotated[
    str,
    Field(min_length=1, max_length=128, description="The session to use, which must exist."),
]


@dataclass(frozen=True)
class OpenSession:
    """A session that a tool uses, and how to use it. `is_new` if this call created it."""

    store: SessionStore
    owner: Owner
    session: HostedSession
    is_new: bool


def owner_of(context: Context[Any, Any]) -> Owner:
    """Return the owner of the request that a tool answers."""
    return owner_of_request(context.request_context.request)


def owner_of_request(request: Any) -> Owner:
    """Return the owner that the HTTP door found for `request`. Over stdio, which has no requests,
    there is only one.
    """
    return ANONYMOUS if request is None else request.state.owner


@contextlib.asynccontextmanager
async def open_session(
    get_store: StoreSource,
    context: Context[Any, Any],
    session_id: str,
    action: Action | None = None,
) -> AsyncGenerator[OpenSession]:
    """Yield a session, created on first use. Errors of this library become `ToolError`s.

    `action` is what the context does, for the audit log.
    """
    with tool_errors():
        store, owner = await get_store(), owner_of(context)
        known = {session.identifier for session in store.sessions_of(owner)}
        async with store.use(owner, session_id, action) as session:
            yield OpenSession(store, owner, session, session_id not in known)


@contextlib.asynccontextmanager
async def open_existing(
    get_store: StoreSource,
    context: Context[Any, Any],
    session_id: str,
    action: Action | None = None,
) -> AsyncGenerator[OpenSession]:
    """Yield a session as `open_session` does, but raise `ToolError` if there is none."""
    with tool_errors():
        store, owner = await get_store(), owner_of(context)
        try:
            store.find(owner, session_id)
        except SessionNotFound:
            await store.journal.check_elsewhere(owner, session_id)
            raise
        async with open_session(get_store, context, session_id, action) as opened:
            yield opened


@contextlib.contextmanager
def tool_errors() -> Generator[None]:
    """Turn errors of this library into `ToolError`s, whose message the model is shown."""
    try:
        yield
    except TooManySessions as error:
        raise ToolError(f"{error} The tool reset_session ends one of yours.") from error
    except CellblockError as error:
        raise ToolError(str(error)) from error
