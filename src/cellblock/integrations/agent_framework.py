"""A sandbox for agents of Microsoft's Agent Framework. Needs the extra `agent-framework`."""

# The framework is not a dependency. A type checker may not find it, or take this module for it.
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportInvalidTypeForm=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from agent_framework import ContextProvider, FunctionTool, tool
from agent_framework_tools.shell import ShellResult

from ..box.base import Box
from ..observation import observe
from .box_argument import require_box
from .host_functions import FunctionSession
from .stopping import time_limit

_INSTRUCTIONS = """\
`execute_code` runs Python in a live session of a sandbox, without a network. Variables, imports and
files stay from call to call. Print what you want to see. The code can call these functions, which
take and return JSON values:
{functions}"""


class CellblockShellExecutor:
    """Let an agent run commands in one shell of a sandbox, which keeps folder and variables.

        from cellblock.integrations.agent_framework import CellblockShellExecutor
        agent = Agent(client, tools=[CellblockShellExecutor(sandbox).as_function()])

    One for each conversation. Closing `sandbox` is left to its owner.
    """

    def __init__(self, sandbox: Box) -> None:
        self.sandbox = require_box(sandbox)
        self._shell = self.sandbox.shell()

    async def start(self) -> None:
        """Start the sandbox. Do nothing if it is started."""
        await self.sandbox.start()

    async def close(self) -> None:
        """End the shell with its processes. The next command starts a new one."""
        await self._shell.restart()

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of the framework
    ) -> ShellResult:
        """Run a command in the shell."""
        done = await self._shell.run(command, timeout=time_limit(self.sandbox, timeout))
        return ShellResult(
            done.stdout_text,
            done.stderr_text,
            done.exit_code,
            round(done.usage.wall_seconds * 1000),
            done.truncated,
            done.timed_out,
        )

    def as_function(self, name: str = "run_shell") -> Any:
        """Return the tool that an agent gets, a `FunctionTool`."""

        @tool(name=name, description="Run a command in a bash session that keeps its state.")
        async def run_shell(command: str) -> str:
            return (await self.run(command)).format_for_model()

        return run_shell

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class CellblockCodeActProvider(ContextProvider):
    """Let an agent write code that calls tools, in a live session of the sandbox.

        from cellblock.integrations.agent_framework import CellblockCodeActProvider
        agent = Agent(client, context_providers=[CellblockCodeActProvider(tools=[weather])])

    Tools run in this process; arguments and results cross as JSON. If one of them, or
    `approval_mode`, asks for approval, so does each run of code. Use one provider for each
    conversation, and `close` it. The other parameters are those of `SandboxSessionCodeExecutor`
    without `input_callback`.
    """

    def __init__(
        self,
        source_id: str = "cellblock_codeact",
        *,
        tools: Sequence[FunctionTool | Callable[..., Any]] = (),
        approval_mode: str = "never_require",
        **options: Any,
    ) -> None:
        super().__init__(source_id)
        self.tools = [each if isinstance(each, FunctionTool) else tool(each) for each in tools]
        modes = {approval_mode, *(each.approval_mode for each in self.tools)}
        self._mode = "always_require" if "always_require" in modes else "never_require"
        self._session = FunctionSession(**options)

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Any) -> None:
        """Give the agent the tool `execute_code`, and say what the code can call."""
        functions = "\n".join(
            f"- {each.name}({', '.join(_names(each))}): {each.description}" for each in self.tools
        )
        context.extend_instructions(self.source_id, _INSTRUCTIONS.format(functions=functions))
        context.extend_tools(self.source_id, [tool(self.execute_code, approval_mode=self._mode)])

    async def execute_code(self, code: str) -> str:
        """Run Python code in the live session, and return what it prints."""
        self._session.functions = {each.name: _taking_values(each) for each in self.tools}
        try:
            block = await self._session.run(code)
        except EOFError as error:
            return str(error)
        return observe(block.result).text

    async def close(self) -> None:
        """End the session."""
        await self._session.stop()


def _names(each: FunctionTool) -> list[str]:
    return list(each.parameters().get("properties", ()))


def _taking_values(each: FunctionTool) -> Callable[..., Any]:
    """Return a function that calls a tool with its arguments by name or position."""

    def call(*values: Any, **named: Any) -> Any:
        given = {**dict(zip(_names(each), values, strict=False)), **named}
        if len(given) < len(values) + len(named):
            raise TypeError(f"{each.name} takes these arguments: {', '.join(_names(each))}.")
        return each.invoke(arguments=given, skip_parsing=True)

    return call
