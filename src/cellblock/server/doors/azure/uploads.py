"""Read the files of an upload: multipart, whatever the header Content-Type says.

Semantic Kernel sends multipart bodies under `Content-Type: application/json`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Iterable
from urllib.parse import quote, unquote

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from ....executors.workspace.full_disk import report_full_disk
from ....limits import KIB
from ...http.bodies import body_chunks
from ...refusals import InvalidRequest, TooLarge
from ...sessions.files import split_name
from ...sessions.journal import Action

_FRAME_BYTES = 64 * KIB  # boundaries and headers of the parts
_MAX_FILES, _MAX_FIELDS = 16, 16
_FIRST_LINE = re.compile(rb"--([^\r\n]{1,200})\r?\n")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_EXACT_NAME = re.compile(r";\s*filename\*\s*=\s*utf-8'[^']*'([^\s;]+)", re.IGNORECASE)
_HTML_CODES = {"%22": '"', "%0D": "\r", "%0A": "\n"}
_ADVICE = "Send multipart/form-data with the field 'file'."


@contextlib.asynccontextmanager
async def uploaded_files(
    request: Request, max_file_bytes: int
) -> AsyncGenerator[list[tuple[str, UploadFile]]]:
    """Yield the names and contents of the files in the body.

    Raise `InvalidRequest`, `InvalidFileName` and `TooLarge`, and `WorkspaceError` if the disk is
    full.
    """
    chunks = body_chunks(request, max_file_bytes + _FRAME_BYTES)
    content_type = request.headers.get("content-type", "")
    if "boundary=" not in content_type:
        content_type, chunks = await _find_boundary(chunks)
    parser = MultiPartParser(
        Headers({"content-type": content_type}),
        chunks,
        max_files=_MAX_FILES,
        max_fields=_MAX_FIELDS,
    )
    try:
        with report_full_disk("The upload cannot be stored"):
            form = await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"The upload cannot be read: {error.message} {_ADVICE}") from error
    try:
        files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
        if not files:
            raise InvalidRequest(f"The upload contains no file. {_ADVICE}")
        for file in files:
            if (file.size or 0) > max_file_bytes:
                raise TooLarge(
                    f"The file is too large. At most {max_file_bytes} bytes are accepted."
                )
        client = request.headers.get("user-agent", "")
        yield [("/".join(split_name(_file_name(file, client))), file) for file in files]
    finally:
        await form.close()


def upload_action(uploads: Iterable[tuple[str, UploadFile]]) -> Action:
    """Return what is recorded of uploads."""
    return Action(name="file.upload", size_bytes=sum(file.size or 0 for _, file in uploads))


def _file_name(file: UploadFile, client: str) -> str:
    """Return the name that `client`, the header User-Agent, means. Clients encode in three ways.

    Those of .NET and our own send the exact name as `filename*`. aiohttp percent-encodes every
    character that is not a letter, digit, "_", ".", "-" or "~". Browsers, requests and httpx encode
    quotes and line breaks alone.
    """
    name = file.filename or ""
    disposition = _QUOTED.sub("", file.headers.get("content-disposition", ""))
    if (exact := _EXACT_NAME.search(disposition)) is not None:
        return unquote(exact[1])
    if "aiohttp/" in client and quote(unquote(name), safe="") == name:
        return unquote(name)
    for code, sign in _HTML_CODES.items():
        name = name.replace(code, sign)
    return name


async def _find_boundary(chunks: AsyncGenerator[bytes]) -> tuple[str, AsyncGenerator[bytes]]:
    """Return the content type that the first line of the body stands for, and the whole body."""
    head = b""
    async for chunk in chunks:
        head += chunk
        if (match := _FIRST_LINE.match(head)) is not None:
            boundary = match[1].decode("latin-1").rstrip()
            return f'multipart/form-data; boundary="{boundary}"', _joined(head, chunks)
        if len(head) > KIB:
            break
    raise InvalidRequest(f"The body is not multipart. {_ADVICE}")


async def _joined(head: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield head
    async for chunk in rest:
        yield chunk
