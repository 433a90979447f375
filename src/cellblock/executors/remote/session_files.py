"""SessionFilesExecutor: what an executor of a remote session does with files and packages."""

from __future__ import annotations

import asyncio
import os
import re
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
# What stands for bytes of a name that are not UTF-8, and control characters, which headers cannot
# have.
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_CANNOT_BE_SENT = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


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

        A file in `work_dir` has the same path there; another one has the last part of its path as
        its name. It replaces one of that name. Raise `WorkspaceFileNotFound` if one does not exist,
        and `WorkspaceError` for a name that cannot be sent; no file is sent then.
        """
        sources = [self._local_file(file) for file in files]
        names = [self._name_for_upload(path) for path in sources]

        async def upload(session: RemoteSession) -> None:
            for path, name in zip(sources, names, strict=True):
                await session.client.upload(path, name)
            await session.remember(set(names))

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

    def _name_for_upload(self, path: Path) -> str:
        """Return the path of a file in the session. Raise `WorkspaceError` if it cannot be sent."""
        folder = self._given_work_dir or self._temp_dir  # does not create a temporary one
        name = path.name if folder is None else os.path.relpath(path, folder)
        name = path.name if name.startswith(f"..{os.sep}") else Path(name).as_posix()
        if _CANNOT_BE_SENT.search(name):
            raise WorkspaceError(
                f"{name!r} cannot be uploaded: its name has a control character, or is not valid "
                "UTF-8. Rename the file."
            )
        return name

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
    if path is None or _SURROGATE.search(path):
        raise WorkspaceError(f"{name} is not in the folder of the session. Pass a relative path.")
    return path
