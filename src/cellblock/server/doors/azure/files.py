"""The operations on files, in both dialects."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ...http.downloads import file_response
from ...http.services import Services
from ...owners import Owner
from ...refusals import FileMissing
from ...sessions.files import FileInfo
from ...sessions.journal import Action
from . import answers
from .requests import Query, read_query
from .uploads import upload_action, uploaded_files


class FileOperations:
    """Upload, list, download, describe and delete the files of a session."""

    def __init__(self, services: Services) -> None:
        self._store = services.store

    async def upload_old(self, request: Request, owner: Owner) -> Response:
        """Answer POST files/upload."""
        return JSONResponse(answers.old_files(await self._upload(request, owner, "")))

    async def upload(self, request: Request, owner: Owner) -> Response:
        """Answer POST files, whose answer describes one file."""
        found = await self._upload(request, owner, _folder(request))
        return JSONResponse(answers.new_file(found[0]))

    async def list_files(self, request: Request, owner: Owner) -> Response:
        """Answer GET files, in the dialect of the API version."""
        query = read_query(request)
        folder = _folder(request)
        # The old dialect cannot ask for a folder, so its list has the files in all of them.
        recursive = (
            not query.is_new_dialect or request.query_params.get("recursive", "").lower() == "true"
        )
        async with self._store.use(owner, query.identifier) as session:
            found = await session.files.list_folder(folder, recursive=recursive)
        to_answer = answers.new_files if query.is_new_dialect else answers.old_files
        return JSONResponse(to_answer(found))

    async def download(self, request: Request, owner: Owner) -> Response:
        """Answer GET files/content/NAME and GET files/NAME/content."""
        query, name = read_query(request), _name(request)
        async with self._store.use(owner, query.identifier) as session:
            file = await session.files.open(name)
        return file_response(file, FileInfo(name, 0, 0).content_type)

    async def describe(self, request: Request, owner: Owner) -> Response:
        """Answer GET files/NAME, in the dialect of the API version."""
        query = read_query(request)
        async with self._store.use(owner, query.identifier) as session:
            info = await session.files.info(_name(request))
        is_new = query.is_new_dialect
        return JSONResponse(answers.new_file(info) if is_new else answers.old_files([info]))

    async def delete(self, request: Request, owner: Owner) -> Response:
        """Answer DELETE files/NAME."""
        query = read_query(request)
        action = Action(name="file.delete")
        async with self._store.use(owner, query.identifier, action) as session:
            await session.files.delete(_name(request))
        return Response(status_code=204)

    async def _upload(self, request: Request, owner: Owner, folder: str) -> list[FileInfo]:
        query: Query = read_query(request)
        max_bytes, found = self._store.settings.max_file_bytes, list[FileInfo]()
        async with (
            uploaded_files(request, max_bytes) as uploads,
            self._store.use(owner, query.identifier, upload_action(uploads)) as session,
        ):
            for given, upload in uploads:
                name = f"{folder}/{given}" if folder else given
                await session.files.write(name, upload.file)
                found.append(await session.files.info(name))
        return found


def _folder(request: Request) -> str:
    """Return the folder that the query names relative to /mnt/data; "" for the top."""
    path = request.query_params.get("path", "").rstrip("/")
    path = path.removeprefix("/mnt/data")
    return path.lstrip("/")


def _name(request: Request) -> str:
    name: str = request.path_params["name"]
    if not name:
        raise FileMissing("The path names no file.")
    folder = _folder(request)
    # Some clients quote "/mnt/data/name" with its first slash, others without.
    name = name.removeprefix("mnt/data/")
    return f"{folder}/{name}" if folder else name
