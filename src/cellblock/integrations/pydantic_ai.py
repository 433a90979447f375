"""CellblockWorkspace: a sandbox as a workspace of Pydantic AI. Needs the extra `pydantic-ai`."""

# Pydantic AI is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self
from weakref import WeakValueDictionary

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

from ..box.base import Box
from ..box.results import FileStatus
from ..errors import BackendLost
from .box_argument import attach_by_name, name_of
from .stopping import time_limit

_OUTPUT_BYTES = 10 * 1024 * 1024  # of each stream; more is an error in Pydantic AI
_boxes: WeakValueDictionary[str, Box] = WeakValueDictionary()  # what references name


class CellblockWorkspace:
    """Let agents of Pydantic AI use a sandbox: `agent.run(..., workspace=...)`.

    Its time limit applies to commands without one. Closing the sandbox is left to its owner.
    """

    def __init__(self, sandbox: Box) -> None:
        if not isinstance(sandbox, Box):
            raise ValueError(
                "sandbox must be one of cellblock, such as cellblock.Sandbox(), "
                f"not {sandbox!r:.100}. Those of cellblock.sync cannot be used here."
            )
        self.sandbox: Box | None = sandbox  # None after `attach` if there is none
        self._ref: WorkspaceRef | None = None

    @classmethod
    def attach(cls, ref: WorkspaceRef) -> Self:
        """Return another workspace for a sandbox of this process, or one that is kept."""
        workspace = cls.__new__(cls)
        workspace.sandbox, workspace._ref = _boxes.get(ref.id), ref
        return workspace

    @property
    def ref(self) -> WorkspaceRef | None:
        """What `attach` takes; None before the first use."""
        return self._ref

    async def working_dir(self) -> str:
        """Return the work folder, as commands see it."""
        async with self._opened() as sandbox:
            return sandbox.inner_work_dir

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> CommandResult:
        """Run a command: text with `shell`, else words."""
        if isinstance(command, str) != shell:
            raise TypeError("Pass text with shell=True, or a sequence of words without.")
        async with self._opened() as sandbox:
            limit = time_limit(sandbox, timeout)
            try:
                done = await sandbox.exec(
                    command, env=env, timeout=limit, max_output_bytes=_OUTPUT_BYTES
                )
            except PermissionError as error:
                return CommandResult(exit_code=126, stdout="", stderr=str(error))
        output = {"stdout": done.stdout_text, "stderr": done.stderr_text}
        if done.timed_out:
            raise WorkspaceTimeoutError("The command reached its time limit.", **output)
        if done.truncated:
            message = f"The command wrote more than {_OUTPUT_BYTES} bytes: use a file."
            raise WorkspaceOutputLimitError(message, limit=_OUTPUT_BYTES, **output)
        return CommandResult(exit_code=done.exit_code, **output)

    async def read_bytes(self, path: str) -> bytes:
        """Return the contents of a file."""
        async with self._opened() as sandbox:
            return await sandbox.files.read(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Replace or create a file, and the folders above it."""
        async with self._opened() as sandbox:
            await sandbox.files.write(path, data)

    async def stat(self, path: str) -> FileEntry:
        """Describe a file or a folder."""
        async with self._opened() as sandbox:
            return _entry(await sandbox.files.stat(path))

    async def list_dir(self, path: str) -> list[FileEntry]:
        """Describe what is in a folder."""
        async with self._opened() as sandbox:
            return [_entry(found) for found in await sandbox.files.list(path)]

    async def make_dir(self, path: str) -> None:
        """Create a folder and those above it."""
        async with self._opened() as sandbox:
            await sandbox.files.make_dir(path)

    async def remove(self, path: str) -> None:
        """Remove a file, or a folder with its contents."""
        async with self._opened() as sandbox:
            await sandbox.files.remove(path)

    async def exists(self, path: str) -> bool:
        """Return True if there is a file or folder."""
        async with self._opened() as sandbox:
            return await sandbox.files.exists(path)

    async def realpath(self, path: str) -> str:
        """Return the path without links."""
        async with self._opened() as sandbox:
            return await sandbox.files.resolve(path)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Box]:
        if self.sandbox is None and self._ref is not None:
            self.sandbox = await attach_by_name(self._ref.id)
        if self.sandbox is None:
            raise WorkspaceUnavailableError(f"This process has no sandbox for {self._ref}.")
        try:
            await self.sandbox.start()
            name = name_of(self.sandbox)
            _boxes[name] = self.sandbox
            self._ref = WorkspaceRef(provider="cellblock", id=name)
            yield self.sandbox
        except BackendLost as error:
            raise WorkspaceUnavailableError(str(error)) from error


def _entry(found: FileStatus) -> FileEntry:
    return FileEntry(name=found.name, path=found.path, is_dir=found.is_folder, size=found.size)
