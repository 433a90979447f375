"""RequestSender: authenticated HTTP requests that are sent again where that is safe.

Import this module only when a session is opened, because aiohttp is an extra. The token is sent in
a header, never in a URL, and only to the endpoint. Errors of aiohttp, which may contain the
headers, are not chained.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from ...errors import ServiceError
from ...tracing import headers_of_context
from .access_token import AccessToken
from .retries import NoAnswer, retry_delay
from .service_errors import refusal, unreachable, untrusted

_CONNECT_SECONDS = 20.0
_SILENCE_SECONDS = 60.0  # between two pieces of an answer
_MAX_ERROR_BYTES = 64 * 1024
_JSON_HEADERS = {"Content-Type": "application/json"}
_FIRST_FAILURE, _UNAUTHORIZED = 300, 401


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request to the endpoint.

    task              what it is for, in error messages: "running a block"
    path, query       where: below the endpoint, with %-escapes; and the query parameters
    body              JSON to send; None: none
    file              file to send as multipart, and its name there; None: none
    is_repeatable     whether carrying it out twice does no harm
    silence_seconds   longest time between two pieces of the answer; None: any
    """

    task: str
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict[str, str])
    body: dict[str, object] | None = None
    file: tuple[Path, str] | None = None
    is_repeatable: bool = True
    silence_seconds: float | None = _SILENCE_SECONDS


class RequestSender:
    """Send requests to `endpoint` with the token. Close it by `close`."""

    def __init__(self, endpoint: str, token: AccessToken) -> None:
        self.endpoint = endpoint
        self._token = token
        # Do not use proxies from environment variables, or passwords from ~/.netrc. A connection
        # is not used again late, when the service may be closing it: a run is not sent twice.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=2), trust_env=False
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    @contextlib.asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Yield the answer to `request`, whose status reports success. Raise `ServiceError`."""
        response = await self._send_until_answered(request)
        try:
            yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            raise unreachable(request.task, self.endpoint, error) from None
        finally:
            response.close()  # a connection whose answer was read is free already

    async def _send_until_answered(self, request: Request) -> aiohttp.ClientResponse:
        attempt = 1
        is_token_new = False
        while True:
            end, retry_after = NoAnswer.LOST, None
            try:
                response = await self._send_once(request)
            except aiohttp.ClientSSLError as error:
                raise untrusted(request.task, self.endpoint, error) from None
            except aiohttp.ClientConnectorError as error:
                end = NoAnswer.NOT_SENT
                failure = unreachable(request.task, self.endpoint, error)
            except (aiohttp.ClientError, TimeoutError) as error:
                failure = unreachable(request.task, self.endpoint, error)
            else:
                if response.status < _FIRST_FAILURE:
                    return response
                end, retry_after = response.status, response.headers.get("Retry-After")
                failure = await self._refusal(request, response)
            if end == _UNAUTHORIZED and not is_token_new and self._token.discard():
                is_token_new = True
                continue
            delay = retry_delay(attempt, end, retry_after, is_repeatable=request.is_repeatable)
            if delay is None:
                raise failure
            await asyncio.sleep(delay)
            attempt += 1

    async def _send_once(self, request: Request) -> aiohttp.ClientResponse:
        """Send `request` and return the answer, whatever its status."""
        token = await self._token.get()
        with contextlib.ExitStack() as files:
            return await self._http.request(
                request.method,
                URL(f"{self.endpoint}/{request.path}?{urlencode(request.query)}", encoded=True),
                data=_json(request) if request.file is None else await _form(files, *request.file),
                headers={
                    **headers_of_context(),
                    "Authorization": f"Bearer {token}",
                    **({} if request.body is None else _JSON_HEADERS),
                },
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=_CONNECT_SECONDS, sock_read=request.silence_seconds
                ),
                allow_redirects=False,
            )

    async def _refusal(self, request: Request, response: aiohttp.ClientResponse) -> ServiceError:
        """Return the error that `response` reports, and end it."""
        body = b""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            body = await read_at_most(response, _MAX_ERROR_BYTES)
        response.close()
        return refusal(request.task, self.endpoint, response.status, response.headers, body)


async def read_at_most(response: aiohttp.ClientResponse, size: int) -> bytes:
    """Return the content of an answer, or its first `size` bytes."""
    parts, room = list[bytes](), size
    async for chunk in response.content.iter_any():
        parts.append(chunk[:room])
        room -= len(parts[-1])
        if not room:
            break
    return b"".join(parts)


def _json(request: Request) -> io.BytesIO | None:
    """Return the body as a stream, so that a large one is sent in pieces."""
    return None if request.body is None else io.BytesIO(json.dumps(request.body).encode())


async def _form(files: contextlib.ExitStack, path: Path, name: str) -> aiohttp.MultipartWriter:
    """Return a form with the content of the file at `path`, which is read while it is sent."""
    file = files.enter_context(await asyncio.to_thread(open, path, "rb"))
    form = aiohttp.MultipartWriter("form-data")
    form.append(
        file,
        {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f'form-data; name="file"; {_file_name_fields(name)}',
        },
    )
    return form


def _file_name_fields(name: str) -> str:
    """Return the parameters with the name of a file.

    Some clients encode percent signs, others do not, and services cannot know. So a name with signs
    that can be read in two ways is also sent as RFC 5987 defines it.
    """
    quoted = name.replace("\\", "\\\\").replace('"', '\\"')
    is_plain = not set(name) & set('%"\\')
    exact = "" if is_plain else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'filename="{quoted}"{exact}'
