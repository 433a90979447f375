"""SessionClient: the operations on one session of a pool, in either dialect.

Import this module only when a session is opened, because aiohttp is an extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Generator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from ...errors import ServiceError
from .access_token import AccessToken
from .dialects import (
    Dialect,
    Execution,
    InvalidAnswer,
    PropertiesDialect,
    RemoteFile,
    dialect_for,
)
from .requests import Request, RequestSender, read_at_most
from .service_errors import invalid_answer

# Tried in this order if no version is given. The published clients speak the first.
DEFAULT_VERSIONS = ("2024-02-02-preview", "2025-02-02-preview")
# The first in which a session can be deleted. It also has folders.
_SESSION_VERSION = "2025-02-02-preview"
_MAX_ANSWER_BYTES = 64 * 1024 * 1024  # of JSON; files are streamed
_MAX_PAGES = 1000  # of a list of files
_CHUNK_BYTES = 1024 * 1024
_FIRST_POLL, _LONGEST_POLL = 0.1, 2.0  # seconds between two questions about a run
_UNKNOWN_PATH = (404, 405)


class SessionClient:
    """The session `identifier` of the pool at `endpoint`. Close it by `close`.

    Every method raises `ServiceError`.
    """

    def __init__(
        self, endpoint: str, identifier: str, token: AccessToken, api_version: str | None
    ) -> None:
        self.identifier = identifier
        self._sender = RequestSender(endpoint, token)
        versions = DEFAULT_VERSIONS if api_version is None else (api_version,)
        # Those that the endpoint may speak, until it has run code in one of them.
        self._dialects = [dialect_for(version) for version in versions]

    async def execute(
        self, code: str, seconds: int | None, task: str, *, is_repeatable: bool = False
    ) -> Execution:
        """Run `code` for at most `seconds`, as the service counts them, and wait for its end.

        is_repeatable   whether running the code twice does no harm
        """
        for dialect in self._dialects[:-1]:
            try:
                return await self._execute_in(dialect, code, seconds, task, is_repeatable)
            except ServiceError as error:
                if error.status not in _UNKNOWN_PATH:
                    raise
        return await self._execute_in(self._dialects[-1], code, seconds, task, is_repeatable)

    async def _execute_in(
        self, dialect: Dialect, code: str, seconds: int | None, task: str, is_repeatable: bool
    ) -> Execution:
        request = Request(
            task=task,
            method="POST",
            path=dialect.execute_path,
            query={**self._query(), "api-version": dialect.version},
            body=dialect.execute_body(code, seconds),
            is_repeatable=is_repeatable,
            silence_seconds=None,
        )
        answer = await self._json(request)
        self._dialects = [dialect]
        with self._reading(task):
            execution = dialect.parse_execution(answer)
        return await self._wait_for_end(execution, task)

    async def _wait_for_end(self, execution: Execution, task: str) -> Execution:
        """Ask for the end of a run whose first answer came before its end."""
        delay = _FIRST_POLL
        while execution.status == "running":
            await asyncio.sleep(delay)
            delay = min(_LONGEST_POLL, delay * 1.5)
            answer = await self._get(f"executions/{execution.id}", task)
            with self._reading(task):
                execution = self._dialect.parse_execution(answer)
        return execution

    async def list_files(self) -> list[RemoteFile]:
        """Return the files in the folder of the session, and below it if the service lists them."""
        task, files = "getting the file list", list[RemoteFile]()
        answer = await self._get("files", task, self._dialect.list_query())
        for _ in range(_MAX_PAGES):
            with self._reading(task):
                page, next_url = self._dialect.parse_files(answer)
            files += page
            if not next_url:
                return files
            # Only the query is used: the token must not reach another address.
            answer = await self._get("files", task, dict(parse_qsl(urlsplit(next_url).query)))
        raise invalid_answer(task, self._sender.endpoint, f"more than {_MAX_PAGES} pages")

    async def upload(self, path: Path, name: str) -> None:
        """Send the file at `path` as `name`. Raise `OSError` if it cannot be read."""
        task, dialect = f"uploading {name}", self._dialect_for_file(name)
        sent_name, query = dialect.upload_name(name)
        answer = await self._json(
            Request(
                task=task,
                method="POST",
                path=dialect.upload_path,
                query={**self._query(dialect), **query},
                file=(path, sent_name),
            )
        )
        with self._reading(task):
            saved = dialect.parse_upload(answer, name)
        if saved != name:
            raise ServiceError(
                f"The session service at {self._sender.endpoint} saved {name!r} as {saved!r}. "
                "Use a name of letters, digits, '-', '_' and '.'."
            )

    async def download(self, name: str, target: Path) -> None:
        """Write the content of the file `name` to `target`. Raise `OSError` if that fails."""
        dialect = self._dialect_for_file(name)
        path, query = dialect.content_path(name)
        request = Request(
            task=f"downloading {name}",
            method="GET",
            path=path,
            query={**self._query(dialect), **query},
        )
        async with self._sender.send(request) as response:
            with await asyncio.to_thread(open, target, "wb") as file:
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    await asyncio.to_thread(file.write, chunk)

    async def delete_session(self) -> None:
        """Delete the session with all that runs in it."""
        query = {**self._query(), "api-version": _SESSION_VERSION}
        request = Request(task="deleting the session", method="DELETE", path="session", query=query)
        async with self._sender.send(request):
            pass

    async def close(self) -> None:
        """Close the connections."""
        await self._sender.close()

    @property
    def _dialect(self) -> Dialect:
        return self._dialects[0]

    def _dialect_for_file(self, name: str) -> Dialect:
        """Return the dialect for one file: only the second one can name a folder."""
        is_in_folder = "/" in name and isinstance(self._dialect, PropertiesDialect)
        return dialect_for(_SESSION_VERSION) if is_in_folder else self._dialect

    def _query(self, dialect: Dialect | None = None) -> dict[str, str]:
        version = (dialect or self._dialect).version
        return {"api-version": version, "identifier": self.identifier}

    async def _get(self, path: str, task: str, query: dict[str, str] | None = None) -> object:
        full_query = {**(query or {}), **self._query()}
        return await self._json(Request(task=task, method="GET", path=path, query=full_query))

    async def _json(self, request: Request) -> object:
        """Send a request and return the JSON value of its answer."""
        async with self._sender.send(request) as response:
            text = await read_at_most(response, _MAX_ANSWER_BYTES)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            what = "more than 64 MiB" if len(text) == _MAX_ANSWER_BYTES else "no JSON"
            raise invalid_answer(request.task, self._sender.endpoint, what) from None

    @contextlib.contextmanager
    def _reading(self, task: str) -> Generator[None]:
        """Raise `ServiceError` for an answer of an unknown shape."""
        try:
            yield
        except InvalidAnswer as error:
            raise invalid_answer(task, self._sender.endpoint, error) from None
