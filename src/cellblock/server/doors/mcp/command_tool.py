"""The tool `run_command`."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Resolve
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from ....box.results import CommandResult
from ....events import Output
from ....observation import MAX_CHARACTERS, shorten
from ...sessions.commands import CommandSettings, CommandText, stream_command
from .callers import DEFAULT_SESSION, SessionId, StoreSource, open_session
from .confirmation import Approval, ask_command_approval, check_approval
from .declaration import declare_tool
from .live_output import LiveOutput

_Command = Annotated[str, Field(min_length=1, description="A command for `sh`.")]
_Folder = Annotated[
    str | None, Field(description="The folder to run it in. Default: that of the session.")
]
_Timeout = Annotated[
    float | None,
    Field(gt=0, description="Time limit in seconds. The server may have a shorter one."),
]
_DESCRIPTION = (
    "Run a shell command in the sandbox of a session and return its output. It sees the files of "
    "the session. Each command is a new shell: `cd` and variables do not stay. What "
    "it starts with `setsid` in the background lives on until the session ends."
)


class CommandOutput(BaseModel):
    """The structured output of `run_command`."""

    session_id: str
    exit_code: int = Field(description="124 at the time limit, 128+N if signal N ended it.")
    stdout: str = Field(description="Standard output. Of long output, the middle is left out.")
    stderr: str = Field(description="Standard error. Of long output, the middle is left out.")
    truncated: bool = Field(description="A part of the output is left out.")
    timed_out: bool


class CommandTool:
    """Runs commands in the sessions of a store."""

    def __init__(self, get_store: StoreSource) -> None:
        self._get_store = get_store

    def tool(self, *, confirm: bool) -> Tool:
        """Return the tool. If `confirm`, the user is asked before each command."""
        return declare_tool(
            self.run_confirmed_command if confirm else self.run_command,
            name="run_command",
            title="Run a command",
            description=_DESCRIPTION,
            annotations=ToolAnnotations(
                read_only_hint=False,
                destructive_hint=True,
                idempotent_hint=False,
                open_world_hint=False,
            ),
        )

    async def run_command(
        self,
        ctx: Context[Any, Any],
        command: _Command,
        session_id: SessionId = DEFAULT_SESSION,
        cwd: _Folder = None,
        timeout_seconds: _Timeout = None,
    ) -> Annotated[CallToolResult, CommandOutput]:
        """Run a command and return its result. Cancelling the call kills it."""
        settings = CommandSettings(command=command, cwd=cwd, seconds=timeout_seconds)
        result: CommandResult | None = None
        text = CommandText()
        async with (
            open_session(self._get_store, ctx, session_id) as opened,
            LiveOutput(lambda count, text: ctx.report_progress(count, message=text)) as live,
            contextlib.aclosing(
                stream_command(opened.store, opened.owner, opened.session, settings)
            ) as items,
        ):
            async for item in items:
                if isinstance(item, CommandResult):
                    result = item
                else:
                    live.add_event(Output(0, *text.decode(item)))
        assert result is not None
        return _to_tool_result(result, session_id)

    async def run_confirmed_command(
        self,
        ctx: Context[Any, Any],
        approval: Annotated[ElicitationResult[Approval], Resolve(ask_command_approval)],
        command: _Command,
        session_id: SessionId = DEFAULT_SESSION,
        cwd: _Folder = None,
        timeout_seconds: _Timeout = None,
    ) -> Annotated[CallToolResult, CommandOutput]:
        """Run a command as `run_command` does, if the user approved."""
        check_approval(approval)
        return await self.run_command(ctx, command, session_id, cwd, timeout_seconds)


def _to_tool_result(result: CommandResult, session_id: str) -> CallToolResult:
    """Return `result` as the answer to a tool call: a failing command is data."""
    out, err = result.stdout_text, result.stderr_text
    shown = {
        "stdout": shorten(out, MAX_CHARACTERS),
        "stderr": shorten(err, MAX_CHARACTERS),
    }
    output = CommandOutput(
        session_id=session_id,
        exit_code=result.exit_code,
        truncated=result.truncated or max(len(out), len(err)) > MAX_CHARACTERS,
        timed_out=result.timed_out,
        **shown,
    )
    parts = [part for part in (*shown.values(), _ending(result)) if part]
    text = "\n".join(part.removesuffix("\n") for part in parts)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=output.model_dump(mode="json"),
    )


def _ending(result: CommandResult) -> str:
    if result.timed_out:
        return "The time limit has ended the command."
    return f"The exit code is {result.exit_code}."
