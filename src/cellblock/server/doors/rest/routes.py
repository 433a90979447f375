"""The paths of the door: /v1 and its document. They come before those that accept any prefix."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from ...http.endpoints import Endpoints, json_error
from ...http.services import Services
from .openapi import document
from .operations import operations

_PREFIX = "/v1"


def rest_routes(services: Services) -> list[BaseRoute]:
    """Return the routes of the door. The document needs no key."""
    table = operations(services)
    make = Endpoints(services, "rest", json_error).route
    text = json.dumps(document(table), ensure_ascii=False)

    async def openapi(_request: Request) -> Response:
        return Response(text, media_type="application/json")

    routes = [
        make(each.method, each.path.replace("{path}", "{path:path}"), each.handler)
        for each in table
    ]
    return [Route("/openapi.json", openapi), Mount(_PREFIX, routes=routes)]
