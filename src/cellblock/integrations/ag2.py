"""CellblockAg2Sandbox: a sandbox for the shell and code tools of AG2. Needs the extra `ag2`."""

# AG2 is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Self

from ag2.tools.sandbox import ExecResult, SandboxBase

from ..box.base import Box
from .box_argument import remove_file, require_box
from .stopping import time_limit


class CellblockAg2Sandbox(SandboxBase):
    """Let `SandboxShellTool` and `SandboxCodeTool` of AG2 use a sandbox.

        from cellblock.integrations.ag2 import CellblockAg2Sandbox
        agent = Agent("coder", tools=[SandboxShellTool(CellblockAg2Sandbox(sandbox))])

    Closing `sandbox` is left to its owner.
    """

    def __init__(self, sandbox: Box) -> None:
        self.sandbox = require_box(sandbox)

    def __deepcopy__(self, memo: object) -> Self:
        return self  # AG2 copies the tools of an agent

    @asynccontextmanager
    async def open(self, context: Any = None) -> AsyncGenerator[Self]:
        """Yield this sandbox: all calls of all tools share it."""
        yield self

    @property
    def workdir(self) -> PurePosixPath:
        """The work folder, as commands see it."""
        return PurePosixPath(self.sandbox.inner_work_dir)

    @property
    def host_workdir(self) -> Path | None:
        """None: AG2 never touches the folder itself, whose files code controls."""
        return None

    async def exec(
        self,
        argv: list[str],
        *,
        env: dict[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of AG2
    ) -> ExecResult:
        """Run a program."""
        try:
            limit = time_limit(self.sandbox, timeout)
            done = await self.sandbox.exec(argv, env=env, timeout=limit, merge_stderr=True)
        except PermissionError as error:
            return ExecResult(str(error), 126)
        return ExecResult(done.stdout_text.strip(), done.exit_code)

    async def put_file(self, path: PurePosixPath, content: bytes) -> None:
        """Write a file in the work folder. Raise `ValueError` for an absolute path."""
        await self.sandbox.files.write(_relative(path), content)

    async def remove_file(self, path: PurePosixPath) -> None:
        """Remove a file in the work folder, if there is one. Raise `OSError` for a folder."""
        with contextlib.suppress(FileNotFoundError):
            await remove_file(self.sandbox, _relative(path))


def _relative(path: PurePosixPath) -> str:
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{path} is not in the work folder.")
    return str(path)
