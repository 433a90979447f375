"""The files of sessions as resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.shared.exceptions import MCPError
from mcp.types import INTERNAL_ERROR, ListResourcesResult, Resource
from pydantic import AnyUrl

from ....errors import CellblockError
from ...owners import Owner
from ...refusals import FileMissing, InvalidFileName, SessionNotFound
from ...sessions.session import HostedSession
from ...sessions.session_files import read_all
from .callers import StoreSource, owner_of_request
from .uris import file_uri, parse_file_uri

_MAX_BYTES = 16_000_000
_MAX_LISTED = 1_000


async def read_file(
    get_store: StoreSource, uri: AnyUrl | str, context: Context[Any, Any]
) -> Iterable[ReadResourceContents]:
    """Return the content of a file of an existing session.

    Raise `ResourceNotFoundError`, and `ResourceError` if the file is too large.
    """
    if (names := parse_file_uri(str(uri))) is None:
        raise ResourceNotFoundError(
            f"There is no resource {uri}. Use a URI such as sandbox://default/data.csv."
        )
    session_id, path = names
    owner = owner_of_request(context.request_context.request)
    try:
        store = await get_store()
        store.find(owner, session_id)
        async with store.use(owner, session_id) as session:
            return [await _read(session, path)]
    except (SessionNotFound, FileMissing, InvalidFileName) as error:
        raise ResourceNotFoundError(str(error)) from error
    except CellblockError as error:
        raise ResourceError(str(error)) from error


async def _read(session: HostedSession, path: str) -> ReadResourceContents:
    info = await session.files.info(path)
    if info.size_bytes > _MAX_BYTES:
        raise ResourceError(
            f"{path} has {info.size_bytes} bytes, more than {_MAX_BYTES}. Read it in parts with "
            "the tool read_file."
        )
    data = await read_all(await session.files.open(path), _MAX_BYTES)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return ReadResourceContents(data, info.content_type)
    is_text = "\0" not in text and not info.content_type.startswith("image/")
    guessed = info.content_type
    mime_type = "text/plain" if guessed == "application/octet-stream" else guessed
    return ReadResourceContents(text if is_text else data, mime_type if is_text else guessed)


class ResourceLister:
    """Middleware that answers `resources/list` with the files of the caller's open sessions."""

    def __init__(self, get_store: StoreSource) -> None:
        self._get_store = get_store

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        """Answer the request, or pass it on if it is another one."""
        if ctx.method != "resources/list":
            return await call_next(ctx)
        return ListResourcesResult(resources=await self._list(owner_of_request(ctx.request)))

    async def _list(self, owner: Owner) -> list[Resource]:
        try:
            store = await self._get_store()
        except CellblockError as error:  # it could not start
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        found = list[Resource]()
        for session in store.sessions_of(owner):
            try:
                found += await _list_session(session)
            except CellblockError:  # it has just ended
                continue
        return found[:_MAX_LISTED]


async def _list_session(session: HostedSession) -> list[Resource]:
    return [
        Resource(
            uri=file_uri(session.identifier, info.path),
            name=info.path,
            size=info.size_bytes,
            mime_type=info.content_type,
        )
        for info in await session.files.list_folder(recursive=True)
        if not info.is_folder
    ]
