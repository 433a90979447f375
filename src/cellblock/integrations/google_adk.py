"""A sandbox for agents of Google's ADK. Needs the extra `google-adk`."""

# ADK is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import base64
import binascii
import mimetypes
from pathlib import Path
from typing import Any

from google.adk.agents.invocation_context import InvocationContext
from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import (
    CodeExecutionInput,
    CodeExecutionResult,
    File,
)
from google.adk.environment import BaseEnvironment, ExecutionResult
from pydantic import ConfigDict

from ..aio.background_loop import background_loop
from ..box.base import Box
from .box_argument import require_box
from .stopping import EndsWithTask, IsStopped, time_limit, until_stopped


class CellblockAdkEnvironment(BaseEnvironment):
    """Let an agent of ADK run commands and use files in a sandbox.

        from cellblock.integrations.google_adk import CellblockAdkEnvironment
        Agent(..., tools=[EnvironmentToolset(environment=CellblockAdkEnvironment(sandbox))])

    ADK closes the sandbox with the toolset.
    """

    def __init__(self, sandbox: Box) -> None:
        self.sandbox = require_box(sandbox)

    async def initialize(self) -> None:
        """Start the sandbox. Do nothing if it is started."""
        await self.sandbox.start()
        self.is_initialized = True

    async def close(self) -> None:
        """Close the sandbox. Do nothing if it is closed."""
        await self.sandbox.close()
        self.is_initialized = False

    @property
    def working_dir(self) -> Path:
        """The work folder, as commands see it."""
        return Path(self.sandbox.inner_work_dir)

    async def execute(
        self,
        command: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of ADK
    ) -> ExecutionResult:
        """Run a shell command."""
        done = await self.sandbox.exec(command, timeout=time_limit(self.sandbox, timeout))
        return ExecutionResult(done.exit_code, done.stdout_text, done.stderr_text, done.timed_out)

    async def read_file(self, path: Path) -> bytes:
        """Return the contents of a file."""
        return await self.sandbox.files.read(str(path))

    async def write_file(self, path: Path, content: str | bytes) -> None:
        """Replace or create a file, and the folders above it."""
        await self.sandbox.files.write(str(path), content)


class CellblockAdkCodeExecutor(BaseCodeExecutor):
    """Run the code blocks of an agent of ADK in the live Python of a sandbox.

        from cellblock.integrations.google_adk import CellblockAdkCodeExecutor
        Agent(..., code_executor=CellblockAdkCodeExecutor(sandbox=sandbox))

    Variables stay from block to block. Closing `sandbox` is left to its owner.
    """

    model_config = ConfigDict(ignored_types=(EndsWithTask,))
    sandbox: Any
    stateful: bool = True

    @EndsWithTask
    def execute_code(
        self,
        invocation_context: InvocationContext,
        code_execution_input: CodeExecutionInput,
        is_stopped: IsStopped,
    ) -> CodeExecutionResult:
        """Run a block. Files that it makes are in the result."""
        return background_loop().run(until_stopped(self._execute(code_execution_input), is_stopped))

    async def _execute(self, given: CodeExecutionInput) -> CodeExecutionResult:
        files = self.sandbox.files
        inputs = {file.name: _content(file) for file in given.input_files}
        for name, content in inputs.items():
            await files.write(name, content)
        limit = time_limit(self.sandbox, self.timeout_seconds)
        result = await self.sandbox.run_code(given.code, timeout=limit)
        found = {name: await files.read(name) for name in result.files}
        made = [
            File(name, content, mimetypes.guess_type(name)[0] or "application/octet-stream")
            for name, content in found.items()
            if content != inputs.get(name)
        ]
        if result.exit_code == 0:  # ADK takes any stderr for a failure
            return CodeExecutionResult(result.output, "", made, 0)
        return CodeExecutionResult(result.stdout, result.output, made, result.exit_code)


def _content(file: File) -> bytes:
    """Return the content of a file, which ADK encodes as text in base64."""
    if isinstance(file.content, bytes):
        return file.content
    try:
        return base64.b64decode(file.content, validate=True)
    except binascii.Error:
        return file.content.encode()
