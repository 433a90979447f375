"""Upload, download and delete the files of a session in forms."""

from __future__ import annotations

import os
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from ...limits import KIB
from ..doors.azure.uploads import upload_action, uploaded_files
from ..doors.rest.files import FileOperations
from ..doors.rest.live_run import use_existing
from ..http.services import Services
from ..sessions.journal import Action
from .forms import read_form
from .gate import Visitor
from .pages import path_part, see_other

_MAX_FORM_BYTES = 32 * KIB


class FilePages:
    """The files of a session. Browsers save downloads, and never show them."""

    def __init__(self, services: Services) -> None:
        self._store, self._operations = services.store, FileOperations(services)

    async def upload_files(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/files."""
        owner, session_id = visitor.owner, _session_id(request)
        self._store.find(owner, session_id)
        async with (
            uploaded_files(request, self._store.settings.max_file_bytes) as uploads,
            use_existing(self._store, owner, session_id, upload_action(uploads)) as session,
        ):
            for name, upload in uploads:
                await session.files.write(name, upload.file)
        return _to_files(session_id)

    async def download_file(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET sessions/ID/files/PATH, as the REST door does, but never as a script."""
        answer = await self._operations.download_file(request, visitor.owner)
        answer.headers["content-type"] = "application/octet-stream"
        return answer

    async def delete_file(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST sessions/ID/delete-file."""
        fields, session_id = await read_form(request, _MAX_FORM_BYTES), _session_id(request)
        path = os.fsdecode(unquote_to_bytes(fields.get("path", "")))
        action = Action(name="file.delete")
        async with use_existing(self._store, visitor.owner, session_id, action) as session:
            await session.files.delete(path)
        return _to_files(session_id)


def _session_id(request: Request) -> str:
    identifier: str = request.path_params["session_id"]
    return identifier


def _to_files(session_id: str) -> Response:
    return see_other(f"/sessions/{path_part(session_id)}#files")
