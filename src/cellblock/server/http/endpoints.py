"""Endpoints: handlers that know the owner of a request, and answer errors in their dialect."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from ...errors import CellblockError, WorkspaceError
from ..owners import Owner
from ..refusals import Refusal, SessionNotFound
from .services import Services
from .statuses import message_of, status_of

Handler = Callable[[Request, Owner], Awaitable[Response]]
ErrorAnswer = Callable[[Exception], Response]
RouteT = TypeVar("RouteT", Route, Mount)
_log = logging.getLogger(__name__)


class Endpoints:
    """Make the routes of one door. `operation` names are what the log shows of a request.

    answer_error   returns the answer to an error in the door's dialect
    """

    def __init__(self, services: Services, door: str, answer_error: ErrorAnswer) -> None:
        self._services, self._door, self._answer_error = services, door, answer_error

    def route(self, method: str, path: str, handler: Handler) -> Route:
        """Return a route for exactly this path."""
        return Route(path, self._endpoint(handler), methods=[method])

    def suffix_route(self, method: str, path: str, handler: Handler) -> Route:
        """Return a route for this path below any prefix."""
        return _SuffixRoute(path, self._endpoint(handler), methods=[method])

    def _endpoint(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        operation = f"{self._door}.{getattr(handler, '__name__', 'request')}"

        async def endpoint(request: Request) -> Response:
            request.state.operation = operation
            try:
                with self._services.requests.handling():
                    owner = await self._services.find_owner(request, self._door)
                    return await self._handle(handler, request, owner)
            except ClientDisconnect:
                return Response(status_code=499)  # the client has gone
            except CellblockError as error:
                log_error(request, error)
                return self._answer_error(error)
            except Exception as error:
                log_error(request, error)
                return self._answer_error(error)

        return endpoint

    async def _handle(self, handler: Handler, request: Request, owner: Owner) -> Response:
        try:
            return await handler(request, owner)
        except SessionNotFound as error:
            if error.identifier is not None:
                await self._services.store.journal.check_elsewhere(owner, error.identifier)
            raise


def match_newlines(route: RouteT) -> RouteT:
    """Return `route`, in whose paths names can have newlines now."""
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


def log_error(request: Request, error: Exception) -> None:
    """Log an error that is the server's fault, with its traceback.

    A `WorkspaceError` has none: clients are told its message, which can have the name of a file.
    """
    context = {"request_id": request.state.request_id}
    if isinstance(error, WorkspaceError):
        reason = getattr(error.__cause__, "strerror", None) or "the disk is full or not writable"
        _log.warning("request failed: %s", reason, extra=context)
    elif status_of(error).status >= 500 and not isinstance(error, Refusal):
        _log.error("request failed: %s", type(error).__name__, exc_info=error, extra=context)


def json_error(error: Exception) -> JSONResponse:
    """Return {"error": {"code", "message"}} with the fitting status."""
    status = status_of(error)
    return JSONResponse(
        {"error": {"code": status.code, "message": message_of(error)}},
        status.status,
        {**status.headers, "x-ms-error-code": status.code},
    )


class _SuffixRoute(Route):
    """A route that matches the end of a path, and the earliest one if there are several."""

    def __init__(self, path: str, endpoint: Callable[..., object], methods: list[str]) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.path_regex = re.compile(f"^.*?{self.path_regex.pattern.removeprefix('^')}")
