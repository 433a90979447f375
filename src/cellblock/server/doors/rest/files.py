"""The operations on the files of a session."""

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import BinaryIO, cast
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from ....executors.workspace.full_disk import report_full_disk
from ....limits import MIB
from ...http.bodies import body_chunks
from ...http.downloads import file_response
from ...http.services import Services
from ...owners import Owner
from ...refusals import InvalidRequest
from ...sessions.files import FileInfo, split_name
from ...sessions.journal import Action
from .answers import FileEntry, FileList, answer
from .live_run import use_existing

_MEMORY_BYTES = 1 * MIB  # of an upload; the rest waits in a file


class FileOperations:
    """List, upload, download and delete files. Paths are relative to the session's folder."""

    def __init__(self, services: Services) -> None:
        self._store = services.store

    async def list_files(self, request: Request, owner: Owner) -> Response:
        """Answer GET sessions/ID/files."""
        folder = request.query_params.get("folder", "")
        recursive = request.query_params.get("recursive", "false")
        if recursive not in ("true", "false"):
            raise InvalidRequest("The query parameter 'recursive' must be true or false.")
        async with use_existing(self._store, owner, _session_id(request)) as session:
            found = await session.files.list_folder(folder, recursive=recursive == "true")
        return answer(FileList(files=list(map(FileEntry.of, found))))

    async def upload_file(self, request: Request, owner: Owner) -> Response:
        """Answer PUT sessions/ID/files/PATH, whose body is the content."""
        session_id, path = _session_id(request), _path(request)
        self._store.find(owner, session_id)
        with (
            report_full_disk(f"{path!r} cannot be uploaded"),
            tempfile.SpooledTemporaryFile(_MEMORY_BYTES) as spool,
        ):
            async for chunk in body_chunks(request, self._store.settings.max_file_bytes):
                await asyncio.to_thread(spool.write, chunk)
            action = Action(name="file.upload", size_bytes=spool.tell())
            async with use_existing(self._store, owner, session_id, action) as session:
                await session.files.write(path, cast(BinaryIO, spool))
                info = await session.files.info(path)
        return answer(FileEntry.of(info))

    async def download_file(self, request: Request, owner: Owner) -> Response:
        """Answer GET sessions/ID/files/PATH."""
        path = _path(request)
        async with use_existing(self._store, owner, _session_id(request)) as session:
            file = await session.files.open(path)
        # A page that code has written must not run in a browser with the rights of this server.
        return file_response(
            file,
            FileInfo(path, 0, 0).content_type,
            request_headers=request.headers,
            attachment_name=path.rpartition("/")[2],
        )

    async def delete_file(self, request: Request, owner: Owner) -> Response:
        """Answer DELETE sessions/ID/files/PATH, which is a file or a folder."""
        path, action = _path(request), Action(name="file.delete")
        async with use_existing(self._store, owner, _session_id(request), action) as session:
            await session.files.delete(path, folders=True)
        return Response(status_code=204)


def _session_id(request: Request) -> str:
    identifier: str = request.path_params["session_id"]
    return identifier


def _path(request: Request) -> str:
    """Return the checked path of a file. Raise `InvalidFileName`."""
    path: str = request.path_params["path"]
    raw: bytes = request.scope.get("raw_path", b"")
    if "\ufffd" in path and raw:  # bytes that are not UTF-8, or really this character
        path = os.fsdecode(unquote_to_bytes(raw)).split("/", 5)[5]  # /v1/sessions/ID/files/PATH
    return "/".join(split_name(path))
