"""Answer with the content of a file, in pieces."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from typing import BinaryIO

from starlette.responses import StreamingResponse

from ...limits import KIB

_CHUNK_BYTES = 256 * KIB


def file_response(file: BinaryIO, content_type: str) -> StreamingResponse:
    """Return an answer with the content of `file`, which it closes.

    A file that grows meanwhile is sent up to its size at the beginning.
    """
    size = os.fstat(file.fileno()).st_size
    return StreamingResponse(
        _chunks(file, size),
        headers={"content-length": str(size), "x-content-type-options": "nosniff"},
        media_type=content_type,
    )


async def _chunks(file: BinaryIO, size: int) -> AsyncGenerator[bytes]:
    left = size
    try:
        while left and (chunk := await asyncio.to_thread(file.read, min(left, _CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk
    finally:
        file.close()
