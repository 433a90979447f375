"""The content of a file as tools return it: text if possible, otherwise base64."""

from __future__ import annotations

import base64
import codecs
from typing import Literal

from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
)
from pydantic import BaseModel, Field

from ...sessions.files import FileInfo
from .uris import file_uri

Encoding = Literal["utf-8", "base64"]
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MAX_IMAGE_BYTES = 4_000_000


class FilePart(BaseModel):
    """A part of a file."""

    path: str
    size_bytes: int = Field(description="Size of the whole file.")
    offset: int = Field(description="Where the content starts, in bytes.")
    next_offset: int | None = Field(description="Where the next part starts; null at the end.")
    encoding: Encoding
    content: str


def to_part(data: bytes, info: FileInfo, offset: int) -> FilePart:
    """Return what was read of a file, from `offset` bytes on.

    A part that ends within a character is cut before it. Bytes that are not text become base64.
    """
    try:
        decoder = codecs.getincrementaldecoder("utf-8")()
        text = decoder.decode(data, final=offset + len(data) >= info.size_bytes)
        length = len(data) - len(decoder.getstate()[0])
        is_text = "\0" not in text and (length > 0 or not data)
    except UnicodeDecodeError:
        text, length, is_text = "", len(data), False
    if not is_text:
        length = len(data)
    end = offset + length
    return FilePart(
        path=info.path,
        size_bytes=info.size_bytes,
        offset=offset,
        next_offset=end if data and end < info.size_bytes else None,
        encoding="utf-8" if is_text else "base64",
        content=text if is_text else base64.b64encode(data).decode(),
    )


def is_image(info: FileInfo) -> bool:
    """Return True if models with vision can be shown the file."""
    return info.content_type in _IMAGE_TYPES and 0 < info.size_bytes <= MAX_IMAGE_BYTES


def to_tool_result(part: FilePart, info: FileInfo, session_id: str) -> CallToolResult:
    """Return a part of a file as the answer to a tool call."""
    blocks: list[ContentBlock] = []
    if part.encoding == "utf-8":
        blocks.append(TextContent(type="text", text=part.content))
    elif is_image(info) and part.offset == 0 and part.next_offset is None:
        image = ImageContent(type="image", data=part.content, mime_type=info.content_type)
        blocks.append(image)
    else:
        contents = BlobResourceContents(
            uri=file_uri(session_id, info.path), blob=part.content, mime_type=info.content_type
        )
        blocks.append(EmbeddedResource(type="resource", resource=contents))
    if part.next_offset is not None:
        rest = f"[The file has {part.size_bytes} bytes. Read on from offset={part.next_offset}.]"
        blocks.append(TextContent(type="text", text=rest))
    return CallToolResult(content=blocks, structured_content=part.model_dump(mode="json"))
