"""Answer with the content of a file, or with a range of it, in pieces."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping
from email.utils import formatdate
from urllib.parse import quote

from starlette.responses import JSONResponse, Response, StreamingResponse

from ...limits import KIB
from ..sessions.session_files import OpenFile

_CHUNK_BYTES = 256 * KIB
_ONE_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII | re.IGNORECASE)


def file_response(
    file: OpenFile,
    content_type: str,
    *,
    request_headers: Mapping[str, str] | None = None,
    attachment_name: str | None = None,
) -> Response:
    """Return an answer with the content of `file`, which it closes.

    A file that grows during the download is sent up to its size at the start.

    request_headers   of the request, in which a single range is supported; None: always all
    attachment_name   the name under which browsers save the file; None: they may show it
    """
    size = file.size_bytes
    etag = f'"{file.modified_ns:x}-{size:x}"'
    modified = formatdate(file.modified_ns / 1e9, usegmt=True)
    headers = {"x-content-type-options": "nosniff", "last-modified": modified, "etag": etag}
    if attachment_name is not None:
        headers["content-disposition"] = _attachment(attachment_name)
    found = range(size)
    if request_headers is not None:
        headers["accept-ranges"] = "bytes"
        if request_headers.get("if-range", etag) in (etag, modified):
            found = _requested(request_headers.get("range", ""), size)
    if found is None:
        file.close()
        return _unsatisfiable(size)
    is_part = len(found) < size
    if is_part:
        headers["content-range"] = f"bytes {found[0]}-{found[-1]}/{size}"
    headers["content-length"] = str(len(found))
    return StreamingResponse(
        _chunks(file, found), 206 if is_part else 200, headers, media_type=content_type
    )


def _attachment(name: str) -> str:
    """Return the header for a file name: as it is if that is safe, or as in RFC 8187."""
    encoded = quote(os.fsencode(name), safe="")
    if encoded == name:
        return f'attachment; filename="{name}"'
    return f"attachment; filename*=UTF-8''{encoded}"


def _requested(header: str, size: int) -> range | None:
    """Return the bytes that a header Range names, or None if the file has none of them.

    All of the file if the header is empty, malformed or names several ranges.
    """
    match = _ONE_RANGE.fullmatch(header.strip())
    if match is None or match.groups() == ("", ""):
        return range(size)
    first, last = match.groups()
    if not first:
        found = range(max(0, size - int(last)), size)
    elif last and int(last) < int(first):
        return range(size)
    else:
        found = range(int(first), min(size, int(last) + 1) if last else size)
    return found if found else None


def _unsatisfiable(size: int) -> Response:
    code, message = "RangeNotSatisfiable", f"The file has {size} bytes, and none in this range."
    return JSONResponse(
        {"error": {"code": code, "message": message}},
        416,
        {"content-range": f"bytes */{size}", "x-ms-error-code": code},
    )


async def _chunks(file: OpenFile, found: range) -> AsyncGenerator[bytes]:
    position = found.start
    try:
        while position < found.stop and (
            chunk := await file.read(position, min(found.stop - position, _CHUNK_BYTES))
        ):
            position += len(chunk)
            yield chunk
    finally:
        file.close()
