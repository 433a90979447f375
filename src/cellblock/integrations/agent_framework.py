"""CellblockShellExecutor: a sandbox for agents of Microsoft's Agent Framework.

Needs the extra `agent-framework`.
"""

# The framework is not a dependency. A type checker may not find it, or take this module for it.
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

from typing import Any, Self

from agent_framework import tool
from agent_framework_tools.shell import ShellResult

from ..box.base import Box
from .box_argument import limit_or_default, require_box


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
        """End the shell with its processes."""
        await self._shell.close()

    async def run(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of the framework
    ) -> ShellResult:
        """Run a command in the shell."""
        done = await self._shell.run(command, timeout=limit_or_default(timeout))
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
