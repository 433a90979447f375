"""The tool `run_code`."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Resolve
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import CallToolResult, ToolAnnotations
from pydantic import Field

from ....blocks import CodeBlock
from ...sessions.languages import RUNNABLE, check_language
from ...sessions.session import SessionRun
from .callers import DEFAULT_SESSION, SessionId, StoreSource, open_session, tool_errors
from .confirmation import Approval, ask_approval, check_approval
from .declaration import declare_tool
from .live_output import LiveOutput
from .run_output import RunOutput, to_tool_result

_Code = Annotated[str, Field(description="The source code to run.")]
_Language = Annotated[str, Field(description=f"The language of the code: {', '.join(RUNNABLE)}.")]
_Timeout = Annotated[
    float | None,
    Field(gt=0, description="Time limit in seconds. The server may have a shorter one."),
]
_DESCRIPTION = (
    "Run code in a sandbox and return its output, the pictures that it displays and the files that "
    "it writes. Python runs in a live interpreter, as in a notebook: variables and imports stay in "
    "the session, and the value of the last expression is printed. Code in other languages runs "
    "as a fresh process in the same folder. The current folder is that of the session. "
    "An exit code other than 0 means that the code failed."
)


class RunTool:
    """Runs code in the sessions of a store."""

    def __init__(self, get_store: StoreSource) -> None:
        self._get_store = get_store

    def tool(self, *, confirm: bool) -> Tool:
        """Return the tool. If `confirm`, the user is asked before each run."""
        return declare_tool(
            self.run_confirmed_code if confirm else self.run_code,
            name="run_code",
            title="Run code",
            description=_DESCRIPTION,
            annotations=ToolAnnotations(
                read_only_hint=False,
                destructive_hint=True,
                idempotent_hint=False,
                open_world_hint=False,
            ),
        )

    async def run_code(
        self,
        ctx: Context[Any, Any],
        code: _Code,
        language: _Language = "python",
        session_id: SessionId = DEFAULT_SESSION,
        timeout_seconds: _Timeout = None,
    ) -> Annotated[CallToolResult, RunOutput]:
        """Run code and return its result. Cancelling the call kills the code."""
        with tool_errors():
            check_language(language)
        run, block = SessionRun(language=language), CodeBlock(code, language)
        async with (
            open_session(self._get_store, ctx, session_id) as opened,
            LiveOutput(lambda count, text: ctx.report_progress(count, message=text)) as live,
            contextlib.aclosing(
                opened.store.stream(
                    opened.owner, opened.session, block, run=run, run_seconds=timeout_seconds
                )
            ) as events,
        ):
            async for event in events:
                live.add_event(event)
        assert run.result is not None
        return to_tool_result(
            run.result,
            session_id,
            is_new_session=opened.is_new,
            queue_seconds=run.queue_seconds,
        )

    async def run_confirmed_code(
        self,
        ctx: Context[Any, Any],
        approval: Annotated[ElicitationResult[Approval], Resolve(ask_approval)],
        code: _Code,
        language: _Language = "python",
        session_id: SessionId = DEFAULT_SESSION,
        timeout_seconds: _Timeout = None,
    ) -> Annotated[CallToolResult, RunOutput]:
        """Run code as `run_code` does, if the user approved."""
        check_approval(approval)
        return await self.run_code(ctx, code, language, session_id, timeout_seconds)
