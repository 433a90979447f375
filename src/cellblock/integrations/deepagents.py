"""CellblockBackend: a sandbox for agents of deepagents. Needs the extra `deepagents`."""

# deepagents is not a dependency, so a type checker may not find it.
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from pathlib import PurePosixPath

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from ..aio.background_loop import background_loop
from ..errors import BackendError
from ..sync import DockerSandbox, Sandbox
from .stopping import time_limit


class CellblockBackend(BaseSandbox):
    """Let an agent of deepagents use a sandbox: `create_deep_agent(model, backend=...)`.

    Its time limit applies to commands for which deepagents names none. At the limit the output is
    kept, and the exit code is 124. Closing the sandbox is left to its owner.
    """

    def __init__(self, sandbox: Sandbox | DockerSandbox) -> None:
        if not isinstance(sandbox, Sandbox | DockerSandbox):
            raise ValueError(
                "sandbox must be one of cellblock.sync, such as cellblock.sync.Sandbox(), "
                f"not {sandbox!r:.100}: deepagents calls it without await."
            )
        self.sandbox = sandbox

    @property
    def id(self) -> str:
        """The ID of the sandbox."""
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command. A `timeout` of 0 is none."""
        return background_loop().run(self.aexecute(command, timeout=timeout))

    async def aexecute(
        self,
        command: str,
        *,
        timeout: int | None = None,  # noqa: ASYNC109 - the signature of deepagents
    ) -> ExecuteResponse:
        """Run a shell command as `execute` does."""
        limit = None if timeout == 0 else time_limit(self.sandbox, timeout)
        done = await self.sandbox.wrapped.exec(command, timeout=limit, merge_stderr=True)
        return ExecuteResponse(done.stdout_text, done.exit_code, done.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files. One that fails does not stop the others."""
        return background_loop().run(self.aupload_files(files))

    async def aupload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files as `upload_files` does."""
        return [FileUploadResponse(path, await self._upload(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files. One that fails does not stop the others."""
        return background_loop().run(self.adownload_files(paths))

    async def adownload_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files as `download_files` does."""
        return [await self._download(path) for path in paths]

    async def _upload(self, path: str, content: bytes) -> str | None:
        try:
            await self.sandbox.wrapped.files.write(_absolute(path), content)
        except BackendError:
            raise  # the sandbox is gone, which is no matter of one file
        except (OSError, ValueError) as error:
            return _code_of(error)
        return None

    async def _download(self, path: str) -> FileDownloadResponse:
        try:
            content = await self.sandbox.wrapped.files.read(_absolute(path))
            return FileDownloadResponse(path, content)
        except BackendError:
            raise
        except (OSError, ValueError) as error:
            return FileDownloadResponse(path, None, _code_of(error))


def _absolute(path: str) -> str:
    if not PurePosixPath(path).is_absolute():
        raise ValueError(path)
    return path


def _code_of(error: OSError | ValueError) -> str:
    match error:
        case FileNotFoundError():
            return "file_not_found"
        case IsADirectoryError():
            return "is_directory"
        case PermissionError():
            return "permission_denied"
        case NotADirectoryError() | ValueError():
            return "invalid_path"
        case _:
            return str(error)
