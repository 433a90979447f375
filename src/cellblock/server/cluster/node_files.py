"""NodeFiles: the files of a session on another node."""

from __future__ import annotations

import asyncio
from typing import BinaryIO
from uuid import uuid4

from ...limits import MIB
from ..sessions.files import FileInfo
from ..sessions.session_files import OpenFile, RoomFor, SessionFiles, size_of
from .node import Node

_PIECE_BYTES = 4 * MIB  # of an upload that are sent at a time


class NodeFile(OpenFile):
    """A file of another node."""

    def __init__(self, node: Node, file_id: str, size_bytes: int, modified_ns: int) -> None:
        self._node, self._file_id = node, file_id
        self.size_bytes, self.modified_ns = size_bytes, modified_ns

    async def read(self, offset: int, size: int) -> bytes:
        """See `OpenFile`."""
        data: bytes = await self._node.ask("read_file", self._file_id, offset, size)
        return data

    def close(self) -> None:
        """See `OpenFile`."""
        self._node.tell("close_file", self._file_id)


class NodeFiles(SessionFiles):
    """The files of one executor of a node."""

    def __init__(self, node: Node, executor_id: str, room_for: RoomFor) -> None:
        self._node, self._executor_id, self._room_for = node, executor_id, room_for

    async def list_folder(self, name: str = "", *, recursive: bool = False) -> list[FileInfo]:
        """See `SessionFiles`."""
        found: list[FileInfo] = await self._node.ask(
            "call_files", self._executor_id, "list_folder", name, recursive=recursive
        )
        return found

    async def info(self, name: str) -> FileInfo:
        """See `SessionFiles`."""
        info: FileInfo = await self._node.ask("call_files", self._executor_id, "info", name)
        return info

    async def open(self, name: str) -> NodeFile:
        """See `SessionFiles`."""
        return NodeFile(self._node, *await self._node.ask("open_file", self._executor_id, name))

    async def write(self, name: str, content: BinaryIO) -> None:
        """See `SessionFiles`."""
        upload_id, size = uuid4().hex, size_of(content)
        async with self._room_for(size):
            try:
                await self._node.ask("add_to_upload", upload_id, b"")  # it can be empty
                while data := await asyncio.to_thread(content.read, _PIECE_BYTES):
                    await self._node.ask("add_to_upload", upload_id, data)
                await self._node.ask("write_upload", self._executor_id, upload_id, name)
            finally:
                self._node.tell("end_upload", upload_id)

    async def delete(self, name: str, *, folders: bool = False) -> None:
        """See `SessionFiles`."""
        await self._node.ask("call_files", self._executor_id, "delete", name, folders=folders)
