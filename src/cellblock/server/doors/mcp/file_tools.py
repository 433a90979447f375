"""The tools `list_files`, `read_file` and `write_file`."""

from __future__ import annotations

import base64
import binascii
import io
from datetime import UTC, datetime
from typing import Annotated, Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp.types import CallToolResult, ToolAnnotations
from pydantic import BaseModel, Field

from ...refusals import TooLarge
from ...sessions.files import FileInfo
from ...sessions.journal import Action
from ...sessions.session_files import SessionFiles, read_all
from . import file_content
from .callers import DEFAULT_SESSION, SessionId, StoreSource, open_session
from .declaration import declare_tool
from .file_content import Encoding, FilePart
from .uris import file_uri

_Path = Annotated[
    str,
    Field(
        min_length=1,
        max_length=4096,
        description="Relative to the session's folder /mnt/data, such as 'data/table.csv'.",
    ),
]
_MAX_READ_BYTES = 1_000_000


class FileEntry(BaseModel):
    """A file or folder of a session."""

    path: str
    size_bytes: int
    modified: datetime
    is_folder: bool
    uri: str = Field(description="The URI of the file as a resource.")


class FileList(BaseModel):
    """The files of a session."""

    session_id: str
    files: list[FileEntry]


class WrittenFile(BaseModel):
    """A file that was written."""

    session_id: str
    path: str
    size_bytes: int
    uri: str


class FileTools:
    """Reads and writes the files of the sessions of a store."""

    def __init__(self, get_store: StoreSource) -> None:
        self._get_store = get_store

    def tools(self) -> list[Tool]:
        """Return the tools."""
        reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)
        writes = ToolAnnotations(
            read_only_hint=False,
            destructive_hint=True,
            idempotent_hint=True,
            open_world_hint=False,
        )
        return [
            declare_tool(self.list_files, title="List files", annotations=reads),
            declare_tool(self.read_file, title="Read a file", annotations=reads),
            declare_tool(self.write_file, title="Write a file", annotations=writes),
        ]

    async def list_files(
        self,
        ctx: Context[Any, Any],
        folder: Annotated[
            str, Field(max_length=4096, description="Only this folder. Default: all files.")
        ] = "",
        session_id: SessionId = DEFAULT_SESSION,
    ) -> FileList:
        """List the files and folders of a session, with all subfolders."""
        async with open_session(self._get_store, ctx, session_id) as opened:
            found = await opened.session.files.list_folder(folder, recursive=True)
            entries = [_entry(session_id, info) for info in found]
            return FileList(session_id=session_id, files=entries)

    async def read_file(
        self,
        ctx: Context[Any, Any],
        path: _Path,
        session_id: SessionId = DEFAULT_SESSION,
        offset: Annotated[int, Field(ge=0, description="Where to start, in bytes.")] = 0,
        max_bytes: Annotated[int, Field(gt=0, le=_MAX_READ_BYTES)] = 50_000,
    ) -> Annotated[CallToolResult, FilePart]:
        """Read a file of a session: text as text, pictures as pictures, others as base64."""
        async with open_session(self._get_store, ctx, session_id) as opened:
            info, part = await _read(opened.session.files, path, offset, max_bytes)
            return file_content.to_tool_result(part, info, session_id)

    async def write_file(
        self,
        ctx: Context[Any, Any],
        path: _Path,
        content: str,
        encoding: Annotated[
            Encoding, Field(description="base64 for content that is not text.")
        ] = "utf-8",
        session_id: SessionId = DEFAULT_SESSION,
    ) -> WrittenFile:
        """Create or replace a file of a session. Missing folders are created."""
        data = _decode(content, encoding)
        action = Action(name="file.upload", size_bytes=len(data))
        async with open_session(self._get_store, ctx, session_id, action) as opened:
            limit = opened.store.settings.max_file_bytes
            if len(data) > limit:
                raise TooLarge(
                    f"{path} has {len(data)} bytes. At most {limit} are accepted. "
                    "Write a smaller file, or let code in the session make it."
                )
            await opened.session.files.write(path, io.BytesIO(data))
            info = await opened.session.files.info(path)
        return WrittenFile(
            session_id=session_id,
            path=info.path,
            size_bytes=info.size_bytes,
            uri=file_uri(session_id, info.path),
        )


async def _read(
    files: SessionFiles, path: str, offset: int, max_bytes: int
) -> tuple[FileInfo, FilePart]:
    info = await files.info(path)
    if offset == 0 and file_content.is_image(info):
        max_bytes = max(max_bytes, info.size_bytes)
    data = await read_all(await files.open(path), max_bytes, offset)
    return info, file_content.to_part(data, info, offset)


def _decode(content: str, encoding: Encoding) -> bytes:
    if encoding == "utf-8":
        return content.encode(errors="replace")
    try:
        return base64.b64decode("".join(content.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolError(
            f"The content is not valid base64: {error}. Use encoding='utf-8' for text."
        ) from error


def _entry(session_id: str, info: FileInfo) -> FileEntry:
    return FileEntry(
        path=info.path,
        size_bytes=info.size_bytes,
        modified=datetime.fromtimestamp(info.modified, UTC),
        is_folder=info.is_folder,
        uri=file_uri(session_id, info.path),
    )
