"""The operations on sessions and their environment, of the new dialect."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ....blocks import CodeBlock
from ...http.services import Services
from ...owners import Owner
from . import answers
from .requests import read_api_version, read_query

_PAGE = 100
_LIST_PACKAGES = """\
import importlib.metadata as _metadata, json as _json, platform as _platform
print(_json.dumps({"python": _platform.python_version(), "packages": sorted(
    {f"{each.metadata['Name']}=={each.version}" for each in _metadata.distributions()})}))
"""


class SessionOperations:
    """Describe, list and end sessions."""

    def __init__(self, services: Services) -> None:
        self._store = services.store

    async def describe(self, request: Request, owner: Owner) -> Response:
        """Answer GET session."""
        session = self._store.find(owner, read_query(request).identifier)
        return JSONResponse(
            answers.session_resource(session, self._store.expires_at(session)),
            headers={"etag": f'"{session.id}"'},
        )

    async def delete(self, request: Request, owner: Owner) -> Response:
        """Answer DELETE session."""
        await self._store.close_session(owner, read_query(request).identifier)
        return Response(status_code=204)

    async def stop(self, request: Request, owner: Owner) -> Response:
        """Answer POST .management/stopSession."""
        await self._store.close_session(owner, read_query(request).identifier)
        return Response(status_code=200)

    async def list_sessions(self, request: Request, owner: Owner) -> Response:
        """Answer GET listSessions, one page from `skip`."""
        read_api_version(request)
        skip = request.query_params.get("skip", "0")
        start = int(skip) if skip.isascii() and skip.isdigit() and len(skip) < 10 else 0
        found = self._store.sessions_of(owner)
        is_last = start + _PAGE >= len(found)
        next_page = request.url.include_query_params(skip=start + _PAGE)
        return JSONResponse(
            {
                "sessions": [
                    answers.session_resource(each, self._store.expires_at(each))
                    for each in found[start : start + _PAGE]
                ],
                "nextLink": None if is_last else str(next_page),
            }
        )

    async def metadata(self, request: Request, owner: Owner) -> Response:
        """Answer GET metadata: the Python and the packages of sessions."""
        read_api_version(request)
        async with self._store.use_temporary(owner) as session:
            block = CodeBlock(_LIST_PACKAGES, "python")
            result = (await self._store.run(owner, session, block)).check()
            created = session.created_at
        return JSONResponse(answers.environment(result.stdout, created))
