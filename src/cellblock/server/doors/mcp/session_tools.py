"""The tools that copy sessions, set them back and reset them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any
from uuid import uuid4

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

from ...refusals import InvalidRequest, SessionNotFound
from ...sessions.forks import fork_session
from ...sessions.journal import Action
from .callers import (
    DEFAULT_SESSION,
    ExistingSessionId,
    StoreSource,
    open_existing,
    owner_of,
    tool_errors,
)
from .declaration import declare_tool

_CheckpointName = Annotated[
    str | None,
    Field(max_length=128, description="A name for the checkpoint. Default: the next number."),
]
_Replace = Annotated[
    bool, Field(description="Whether to replace a checkpoint that has this name already.")
]
_EndCommands = Annotated[
    bool,
    Field(description="End the commands that run in the session first. Otherwise it is refused."),
]
_Name = Annotated[str, Field(description="The name of the checkpoint.")]


class CheckpointInfo(BaseModel):
    """A checkpoint of a session."""

    session_id: str
    name: str = Field(description="Pass it to restore or fork.")
    checkpoints: list[str] = Field(description="All checkpoints of the session, oldest first.")


class SessionInfo(BaseModel):
    """A session, after a tool has changed it."""

    session_id: str
    message: str


class SessionTools:
    """Copies, restores and resets the sessions of a store."""

    def __init__(self, get_store: StoreSource) -> None:
        self._get_store = get_store

    def tools(self) -> list[Tool]:
        """Return the tools."""
        changes = ToolAnnotations(
            read_only_hint=False, destructive_hint=True, open_world_hint=False
        )
        copies = ToolAnnotations(
            read_only_hint=False, destructive_hint=False, open_world_hint=False
        )
        return [
            declare_tool(self.checkpoint, title="Save a checkpoint", annotations=copies),
            declare_tool(self.restore, title="Restore a checkpoint", annotations=changes),
            declare_tool(self.drop_checkpoint, title="Delete a checkpoint", annotations=changes),
            declare_tool(self.fork, title="Fork a session", annotations=copies),
            declare_tool(self.reset_session, title="Reset a session", annotations=changes),
        ]

    async def checkpoint(
        self,
        ctx: Context[Any, Any],
        name: _CheckpointName = None,
        session_id: ExistingSessionId = DEFAULT_SESSION,
        replace: _Replace = False,
        end_commands: _EndCommands = False,
    ) -> CheckpointInfo:
        """Save the variables and the files of a session, to go back to them with `restore`."""
        action = Action(name="checkpoint")
        async with open_existing(self._get_store, ctx, session_id, action) as opened:
            try:
                saving = partial(
                    opened.session.checkpoint, name, replace=replace, end_commands=end_commands
                )
                saved = await opened.store.call(opened.session, saving)
            except ValueError as error:  # the name
                raise InvalidRequest(str(error)) from error
            names = [each.name for each in await opened.session.checkpoints()]
            return CheckpointInfo(session_id=session_id, name=saved.name, checkpoints=names)

    async def restore(
        self,
        ctx: Context[Any, Any],
        name: _Name,
        session_id: ExistingSessionId = DEFAULT_SESSION,
        end_commands: _EndCommands = False,
    ) -> SessionInfo:
        """Set the variables and the files of a session back to a checkpoint.

        What happened since then is lost. A checkpoint can be restored several times.
        """
        action = Action(name="restore")
        async with open_existing(self._get_store, ctx, session_id, action) as opened:
            restoring = partial(opened.session.restore, name, end_commands=end_commands)
            await opened.store.call(opened.session, restoring)
            return SessionInfo(
                session_id=session_id, message=f"The session is back at checkpoint {name!r}."
            )

    async def drop_checkpoint(
        self, ctx: Context[Any, Any], name: _Name, session_id: ExistingSessionId = DEFAULT_SESSION
    ) -> SessionInfo:
        """Delete a checkpoint that is not needed any more. A session can have 16 of them."""
        action = Action(name="checkpoint.delete")
        async with open_existing(self._get_store, ctx, session_id, action) as opened:
            await opened.store.call(opened.session, partial(opened.session.drop, name))
            return SessionInfo(
                session_id=session_id, message=f"The checkpoint {name!r} was deleted."
            )

    async def fork(
        self,
        ctx: Context[Any, Any],
        session_id: ExistingSessionId = DEFAULT_SESSION,
        new_session_id: Annotated[
            str | None,
            Field(min_length=1, max_length=128, description="Default: a new random identifier."),
        ] = None,
        checkpoint: Annotated[
            str | None, Field(description="Start from this checkpoint. Default: the present state.")
        ] = None,
        end_commands: _EndCommands = False,
    ) -> SessionInfo:
        """Create an independent copy of a session, with its variables and files.

        Try something in the copy: the original does not change.
        """
        new_id = new_session_id or f"fork-{uuid4().hex[:12]}"
        action = Action(name="fork", target=new_id)
        async with open_existing(self._get_store, ctx, session_id, action) as opened:
            await fork_session(
                opened.store,
                opened.owner,
                opened.session,
                new_id,
                checkpoint=checkpoint,
                end_commands=end_commands,
            )
        return SessionInfo(
            session_id=new_id, message=f"Pass session_id={new_id!r} to use the copy."
        )

    async def reset_session(
        self,
        ctx: Context[Any, Any],
        session_id: ExistingSessionId = DEFAULT_SESSION,
        keep_files: Annotated[
            bool, Field(description="Keep the files; delete only variables and checkpoints.")
        ] = False,
    ) -> SessionInfo:
        """Delete the variables, checkpoints and files of a session. The next use starts anew."""
        with tool_errors():
            store, owner = await self._get_store(), owner_of(ctx)
            try:
                session = store.find(owner, session_id)
            except SessionNotFound:
                return SessionInfo(session_id=session_id, message="There was no such session.")
            if keep_files:
                async with store.use(owner, session_id, Action(name="restart")):
                    await store.call(session, session.restart)
            else:
                await store.close_session(owner, session_id)
        kept = "only its files are kept" if keep_files else "nothing is kept"
        return SessionInfo(session_id=session_id, message=f"The session was reset: {kept}.")
