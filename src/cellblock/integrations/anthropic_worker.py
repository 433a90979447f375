"""sandbox_tools: the tools of Anthropic's managed agents, in a sandbox. Needs `anthropic`."""

# pyright: basic, reportMissingImports=false

from __future__ import annotations

from typing import Any

from anthropic.lib.tools import BetaAsyncFunctionTool, ToolError, beta_async_tool
from anthropic.types.beta import (
    BetaManagedAgentsAgentToolset20260401BashInput as BashInput,
)
from anthropic.types.beta import (
    BetaManagedAgentsAgentToolset20260401EditInput as EditInput,
)
from anthropic.types.beta import (
    BetaManagedAgentsAgentToolset20260401GlobInput as GlobInput,
)
from anthropic.types.beta import (
    BetaManagedAgentsAgentToolset20260401GrepInput as GrepInput,
)
from anthropic.types.beta import (
    BetaManagedAgentsAgentToolset20260401ReadInput as ReadInput,
)
from anthropic.types.beta import (
    BetaManagedAgentsAgentToolset20260401WriteInput as WriteInput,
)

from ..box.base import Box
from ..box.results import CommandResult
from .box_argument import require_box
from .stopping import time_limit

_READ_BYTES = 256 * 1024
# The pattern is only expanded, not split or evaluated. Newest first.
_GLOB = 'shopt -s globstar nullglob; IFS=; found=($1); [ "$found" ] && ls -dt -- "${found[@]}"'


def sandbox_tools(sandbox: Box) -> list[BetaAsyncFunctionTool[Any]]:
    """Return the tools bash, read, write, edit, glob and grep, which work in `sandbox`.

        from cellblock.integrations.anthropic_worker import sandbox_tools
        EnvironmentWorker(client, ..., tools=sandbox_tools(sandbox))

    `bash` keeps its folder and variables. Use a sandbox for each session; you close it.
    """
    tools = _SandboxTools(require_box(sandbox))
    return [
        beta_async_tool(tools.bash, input_schema=BashInput),
        beta_async_tool(tools.read, input_schema=ReadInput),
        beta_async_tool(tools.write, input_schema=WriteInput),
        beta_async_tool(tools.edit, input_schema=EditInput),
        beta_async_tool(tools.glob, input_schema=GlobInput),
        beta_async_tool(tools.grep, input_schema=GrepInput),
    ]


class _SandboxTools:
    def __init__(self, sandbox: Box) -> None:
        self._sandbox, self._shell = sandbox, sandbox.shell()

    async def bash(
        self,
        command: str | None = None,
        restart: bool | None = None,
        timeout_ms: int | None = None,
    ) -> str:
        """Run a command in a persistent bash shell."""
        if restart:
            await self._shell.restart()
            return "bash session restarted"
        limit = time_limit(self._sandbox, timeout_ms / 1000 if timeout_ms else None)
        return _output(await self._shell.run(command or "", timeout=limit))

    async def read(self, file_path: str, view_range: list[int] | None = None) -> str:
        """Read a file."""
        text = await self._text(file_path, None if view_range else _READ_BYTES)
        if not view_range:
            return text
        first, last = view_range
        return "\n".join(text.split("\n")[max(0, first - 1) : last if last > 0 else None])

    async def write(self, file_path: str, content: str) -> str:
        """Write a file, and create the folders above it."""
        try:
            await self._sandbox.files.write(file_path, content)
        except OSError as error:
            raise ToolError(str(error)) from error
        return f"wrote {len(content.encode())} bytes to {file_path}"

    async def edit(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool | None = None
    ) -> str:
        """Replace text in a file by exact match."""
        text = await self._text(file_path, None)
        if (count := text.count(old_string)) != 1 and not (count and replace_all):
            raise ToolError(f"edit: old_string appears {count} times in {file_path}.")
        return await self.write(file_path, text.replace(old_string, new_string))

    async def glob(self, pattern: str, path: str | None = None) -> str:
        """List files that match a pattern, newest first."""
        done = await self._exec(["bash", "-c", _GLOB, "glob", pattern], path)
        return done.stdout_text.rstrip("\n") or "no matches"

    async def grep(self, pattern: str, path: str | None = None) -> str:
        """Search file contents for a regular expression."""
        done = await self._exec(["grep", "-rnE", "-e", pattern, "--", path or "."], None)
        return "no matches" if done.exit_code == 1 else _output(done)

    async def _exec(self, words: list[str], folder: str | None) -> CommandResult:
        try:
            return await self._sandbox.exec(words, cwd=folder)
        except (OSError, ValueError) as error:
            raise ToolError(str(error)) from error

    async def _text(self, path: str, limit: int | None) -> str:
        try:
            return (await self._sandbox.files.read(path, limit_bytes=limit)).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ToolError(f"{path}: {error}") from error


def _output(done: CommandResult) -> str:
    text = done.stdout_text + done.stderr_text
    if done.timed_out:
        raise ToolError(f"{text}\nThe command timed out.")
    if done.exit_code != 0:
        raise ToolError(text or f"exit code {done.exit_code}")
    return text
