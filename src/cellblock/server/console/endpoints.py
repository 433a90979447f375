"""ConsoleEndpoints: handlers that know their visitor, and answer errors with a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ..http.endpoints import log_error, match_newlines
from ..http.services import Services
from ..refusals import NotAuthenticated
from .gate import Gate, Visitor, check_origin
from .pages import Pages, see_other

PageHandler = Callable[[Request, Visitor], Awaitable[Response]]
OpenHandler = Callable[[Request], Awaitable[Response]]


class ConsoleEndpoints:
    """Makes the routes of the console. Visitors who are not signed in are led to the form."""

    def __init__(self, services: Services, gate: Gate, pages: Pages) -> None:
        self._services, self._gate, self._pages = services, gate, pages

    def route(self, method: str, path: str, handler: PageHandler) -> Route:
        """Return a route for visitors who are signed in."""

        async def handle(request: Request) -> Response:
            visitor = await self._gate.identify(request)
            request.state.visitor = visitor
            return await handler(request, visitor)

        return self._make(method, path, handle, handler.__name__)

    def open_route(self, method: str, path: str, handler: OpenHandler) -> Route:
        """Return a route for everybody."""
        return self._make(method, path, handler, handler.__name__)

    def _make(self, method: str, path: str, handle: OpenHandler, name: str) -> Route:
        async def endpoint(request: Request) -> Response:
            request.state.operation, request.state.visitor = f"console.{name}", None
            try:
                with self._services.requests.handling():
                    check_origin(request)
                    return await handle(request)
            except ClientDisconnect:
                return Response(status_code=499)  # the client has gone
            except NotAuthenticated:
                return see_other("/sign-in")
            except Exception as error:
                log_error(request, error)
                return self._pages.error(error, request.state.visitor)

        return match_newlines(Route(path, endpoint, methods=[method]))
