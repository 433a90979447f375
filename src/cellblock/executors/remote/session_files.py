"""SessionFilesExecutor: what an executor of a remote session does with files and packages."""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ...aio.background_loop import background_loop
from ...cancellation import Token
from ...errors import ServiceError, WorkspaceError, WorkspaceFileNotFound
from ..argument_checks import check_folder, check_token, create_folder
from ..base import CodeExecutor
from ..workspace.temp_dir_removal import TempDirRemoval
from .arguments import path_in_session
from .cancellable_work import wait_for_end

if TYPE_CHECKING:
    from .remote_session import RemoteSession

T = TypeVar("T")
_NOT_FOUND = 404


class SessionFilesExecutor(CodeExecutor):
    """Exchange files between the local folder `work_dir` and the session.

    Every method starts the executor if needed, and raises `ServiceError` if the service fails. If
    the token is cancelled, it raises `asyncio.CancelledError`.
    """

    def __init__(self, work_dir: str | os.PathLike[str] | None) -> None:
        super().__init__()
        self._given_work_dir = check_folder("work_dir", work_dir)
        self._temp_dir: Path | None = None
        self._temp_dir_removal: TempDirRemoval | None = None

    @property
    def work_dir(self) -> Path:
        """The local folder for files."""
        if self._given_work_dir is not None:
            return self._given_work_dir
        if self._temp_dir is None or not self._temp_dir.exists():
            self._temp_dir = Path(tempfile.mkdtemp(prefix="cellblock-azure-"))
            self._temp_dir_removal = TempDirRemoval(self, self._temp_dir)
        return self._temp_dir

    @abstractmethod
    async def _open_session(self) -> RemoteSession:
        """Return the session. Open it if it is not open."""

    async def get_file_list(self, cancellation_token: Token | None = None) -> list[str]:
        """Return the names of the files in the session."""
        return await self._call(_list_files, cancellation_token, "File list retrieval cancelled")

    async def get_available_packages(self, cancellation_token: Token | None = None) -> set[str]:
        """Return the names of the Python packages in the session."""
        return await self._call(
            _list_packages, cancellation_token, "Package list retrieval cancelled"
        )

    async def upload_files(
        self, files: Sequence[str | os.PathLike[str]], cancellation_token: Token | None = None
    ) -> None:
        """Send files to the session. Relative paths start at `work_dir`.

        A file has the last part of its path as its name there, and replaces one of that name. Raise
        `WorkspaceFileNotFound` if one does not exist; no file is sent then.
        """
        paths = [self._local_file(file) for file in files]

        async def upload(session: RemoteSession) -> None:
            for path in paths:
                await session.client.upload(path, path.name)
            await session.remember({path.name for path in paths})

        await self._call(upload, cancellation_token, "Uploading files cancelled")

    async def download_files(
        self, files: Sequence[str | os.PathLike[str]], cancellation_token: Token | None = None
    ) -> list[str]:
        """Fetch files from the session into `work_dir`, and return their local paths.

        Raise `WorkspaceFileNotFound` if the session has no such file, and `WorkspaceError` if the
        name leads out of `work_dir`, or the file cannot be written.
        """
        names = [_session_path(os.fspath(file)) for file in files]

        async def download(session: RemoteSession) -> list[str]:
            return [await self._download(session, name) for name in names]

        return await self._call(download, cancellation_token, "Downloading files cancelled")

    async def _call(
        self,
        work: Callable[[RemoteSession], Coroutine[Any, Any, T]],
        token: Token | None,
        message: str,
    ) -> T:
        """Do `work` on the background loop. Raise `CancelledError` with `message`."""
        check_token(token)

        async def call() -> T:
            if token is not None and token.is_cancelled():
                raise asyncio.CancelledError(message)
            task = asyncio.create_task(self._work_on_session(work))
            await wait_for_end(task, token)
            if task.cancelled():
                raise asyncio.CancelledError(message)
            return task.result()

        return await background_loop().call(call())

    async def _work_on_session(self, work: Callable[[RemoteSession], Coroutine[Any, Any, T]]) -> T:
        return await work(await self._open_session())

    def _local_file(self, file: str | os.PathLike[str]) -> Path:
        path = Path(file).expanduser()
        path = path if path.is_absolute() else self.work_dir / path
        if not path.is_file():
            raise WorkspaceFileNotFound(f"{os.fspath(file)} does not exist")
        return path

    async def _download(self, session: RemoteSession, name: str) -> str:
        target = (self.work_dir / name).absolute()
        partial = target.with_name(f".cellblock-{secrets.token_hex(8)}")
        try:
            await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
            try:
                await session.client.download(name, partial)
                await asyncio.to_thread(os.replace, partial, target)
            finally:
                await asyncio.to_thread(partial.unlink, missing_ok=True)
        except ServiceError as error:
            if error.status == _NOT_FOUND:
                raise WorkspaceFileNotFound(f"{name} does not exist") from error
            raise
        except OSError as error:
            raise WorkspaceError(
                f"{name} cannot be written in the work folder {self.work_dir}: {error.strerror}."
            ) from error
        return str(target)

    def _create_work_dir(self) -> None:
        """Create the given folder. A temporary one is created when it is needed."""
        if self._given_work_dir is not None:
            create_folder("work_dir", self._given_work_dir)

    async def _remove_temp_dir(self) -> None:
        if self._temp_dir_removal is not None:
            await asyncio.to_thread(self._temp_dir_removal.remove)
        self._temp_dir_removal = self._temp_dir = None


async def _list_files(session: RemoteSession) -> list[str]:
    return [file.name for file in await session.client.list_files()]


async def _list_packages(session: RemoteSession) -> set[str]:
    return await session.packages()


def _session_path(name: str) -> str:
    """Return the path of a file in the session. Raise `WorkspaceError` if it is outside."""
    path = path_in_session(name.removeprefix("/mnt/data/"))
    if path is None:
        raise WorkspaceError(f"{name} is not in the folder of the session. Pass a relative path.")
    return path
