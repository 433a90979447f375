"""Ask the user before code runs, by elicitation."""

from __future__ import annotations

from typing import Any

from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit
from pydantic import BaseModel, Field

from ....visible_text import visible
from ...sessions.languages import check_language
from .callers import tool_errors


class Approval(BaseModel):
    """The user's answer to the question whether code may run."""

    run: bool = Field(default=True, title="Run this code")


async def ask_approval(
    ctx: Context[Any, Any], code: str, language: str, session_id: str
) -> Elicit[Approval]:
    """Return the question to the user. It contains all of the code, as it is.

    Raise `ToolError` if the client cannot ask its user, or the language does not run.
    """
    with tool_errors():
        check_language(language)
    return _ask(ctx, f"Run this {language} code in the session {session_id!r}?\n\n{code}")


async def ask_command_approval(
    ctx: Context[Any, Any], command: str, session_id: str, cwd: str | None
) -> Elicit[Approval]:
    """Return the question to the user. It contains all of the command, as it is.

    Raise `ToolError` if the client cannot ask its user.
    """
    folder = "" if cwd is None else f" and the folder {cwd!r}"
    return _ask(ctx, f"Run this command in the session {session_id!r}{folder}?\n\n{command}")


def _ask(ctx: Context[Any, Any], question: str) -> Elicit[Approval]:
    capabilities = ctx.client_capabilities
    if capabilities is None or capabilities.elicitation is None:
        raise ToolError(
            "The code was not run: this server asks the user first (--confirm), and this client "
            "cannot ask (it has no elicitation). Use another client, or start the server without "
            "--confirm."
        )
    return Elicit(visible(question), Approval)


def check_approval(answer: ElicitationResult[Approval]) -> None:
    """Raise `ToolError` unless the user approved."""
    if not (isinstance(answer, AcceptedElicitation) and answer.data.run):
        raise ToolError(
            "The user declined to run this code. It was not run. Ask the user what to change."
        )
