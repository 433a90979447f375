"""CellblockStrandsSandbox: a sandbox for agents of Strands. Needs the extra `strands-agents`."""

# Strands is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from strands.sandbox import ExecutionResult, FileInfo, PosixShellSandbox, StreamChunk
from strands.sandbox.errors import SandboxPathNotFoundError, SandboxTimeoutError
from strands.types.tools import AgentTool
from strands.vended_tools.file_editor import make_file_editor
from strands.vended_tools.shell import make_shell

from ..box.base import Box
from ..box.results import CommandResult
from .box_argument import remove_file, require_box
from .stopping import time_limit


class CellblockStrandsSandbox(PosixShellSandbox):
    """Let an agent of Strands use a sandbox, with the tools `shell` and `file_editor`.

        from cellblock.integrations.strands import CellblockStrandsSandbox
        agent = Agent(model, sandbox=CellblockStrandsSandbox(sandbox))

    Closing `sandbox` is left to its owner.
    """

    def __init__(self, sandbox: Box) -> None:
        self.sandbox = require_box(sandbox)

    async def execute_streaming(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of Strands
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[StreamChunk | ExecutionResult, None]:
        """Run a shell command. Raise `SandboxTimeoutError` at the time limit, with the output."""
        decoder = codecs.getincrementaldecoder("utf-8")
        decoders = {1: decoder("replace"), 2: decoder("replace")}
        names, limit = {1: "stdout", 2: "stderr"}, time_limit(self.sandbox, timeout)
        running = self.sandbox.exec_stream(command, timeout=limit, cwd=cwd, env=env)
        async with aclosing(running) as pieces:
            async for piece in pieces:
                if not isinstance(piece, CommandResult):
                    if text := decoders[piece[0]].decode(piece[1]):
                        yield StreamChunk(text, names[piece[0]])
                elif piece.timed_out:
                    seconds = limit if timeout is None else timeout
                    raise SandboxTimeoutError(seconds, piece.stdout_text, piece.stderr_text)
                else:
                    yield ExecutionResult(piece.exit_code, piece.stdout_text, piece.stderr_text)

    async def read_file(self, path: str, **kwargs: Any) -> bytes:
        """Return the contents of a file."""
        return await self.sandbox.files.read(path)

    async def write_file(self, path: str, content: bytes, **kwargs: Any) -> None:
        """Replace or create a file, and the folders above it."""
        await self.sandbox.files.write(path, content)

    async def remove_file(self, path: str, **kwargs: Any) -> None:
        """Remove a file. Raise `IsADirectoryError` for a folder."""
        await remove_file(self.sandbox, path)

    async def list_files(self, path: str, **kwargs: Any) -> list[FileInfo]:
        """List a folder."""
        try:
            found = await self.sandbox.files.list(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SandboxPathNotFoundError(path) from error
        return [FileInfo(entry.name, entry.is_folder, entry.size) for entry in found]

    def get_tools(self) -> list[AgentTool]:
        """Return the tools that an agent gets."""
        return [make_file_editor(sandbox=self), make_shell(sandbox=self)]
