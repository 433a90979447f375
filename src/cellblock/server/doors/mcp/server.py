"""Make the MCP server: its tools, resources and instructions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import AnyUrl

from .... import __version__
from . import resources
from .callers import DEFAULT_SESSION, SessionId, StoreSource
from .cancelling import cancel_once
from .command_tool import CommandTool
from .declaration import argument_error
from .file_tools import FileTools
from .run_tool import RunTool
from .session_tools import SessionTools
from .uris import FILE_URI_TEMPLATE

_INSTRUCTIONS = (
    "Run code in a sandbox with run_code, and shell commands with run_command. Variables, imports "
    "and files stay in a session. "
    f"Without session_id, tools use the session {DEFAULT_SESSION!r}; use another one for work that "
    "must not share variables. Display pictures (for example with matplotlib) to see them. "
    "Before a risky step, save a checkpoint, and restore it if the step fails."
)


class SandboxServer(MCPServer[Any]):
    """An MCP server over the sessions of a store.

    get_store   returns the store when it has started
    confirm     ask the user before each run
    advice      what else a model should know, such as which packages there are
    """

    def __init__(self, get_store: StoreSource, *, confirm: bool = False, advice: str = "") -> None:
        tools = [
            RunTool(get_store).tool(confirm=confirm),
            CommandTool(get_store).tool(confirm=confirm),
            *FileTools(get_store).tools(),
            *SessionTools(get_store).tools(),
        ]
        super().__init__(
            "cellblock",
            title="Cellblock sandbox",
            instructions=f"{_INSTRUCTIONS} {advice}".strip(),
            version=__version__,
            log_level="WARNING",
            tools=tools,
            middleware=[resources.ResourceLister(get_store)],
        )
        self._get_store = get_store
        self._tools = {tool.name: tool for tool in tools}
        self.resource(
            FILE_URI_TEMPLATE,
            name="file",
            title="File of a session",
            description="A file of an open session.",
            mime_type="application/octet-stream",
        )(_describe_file)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. If the client cancels the call, wait until its code is dead."""
        try:
            return await cancel_once(super().call_tool(name, arguments, context))
        except ToolError as error:
            if (described := argument_error(self._tools.get(name), error)) is None:
                raise
            raise described from error

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """Return the content of a file with its own media type, which a template cannot have."""
        assert context is not None
        return await resources.read_file(self._get_store, uri, context)


def _describe_file(session_id: SessionId, path: str) -> str:
    """Return a file of a session. `read_resource` reads it."""
    raise NotImplementedError
