"""The paths of the door: /v1 and its document. They come before those that accept any prefix."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from ...http.endpoints import Endpoints, json_error, match_newlines
from ...http.services import Services
from .live_runs import LiveRuns
from .openapi import document
from .operations import operations
from .session_actions import SessionActions

_PREFIX = "/v1"


def rest_routes(services: Services, runs: LiveRuns, actions: SessionActions) -> list[BaseRoute]:
    """Return the routes of the door. The document needs no key."""
    table = operations(services, runs, actions)
    make = Endpoints(services, "rest", json_error).route
    described = document(table, needs_keys=services.keys is not None)

    async def openapi(request: Request) -> Response:
        request.state.operation = "rest.openapi"
        address = str(request.base_url).rstrip("/")
        return JSONResponse({**described, "servers": [{"url": address}]})

    paths = dict[str, dict[str, Route]]()
    for each in table:
        path = each.path.replace("{path}", "{path:path}")
        paths.setdefault(path, {})[each.method] = make(each.method, path, each.handler)
    routes = [_join(path, methods) for path, methods in paths.items()]
    return [Route("/openapi.json", openapi), match_newlines(Mount(_PREFIX, routes=routes))]


def _join(path: str, routes: Mapping[str, Route]) -> Route:
    """Return one route for all methods of a path, so that answers 405 name all of them."""

    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await routes[method].endpoint(request)

    return match_newlines(Route(path, endpoint, methods=list(routes)))
