"""Make the ASGI application: all doors, health, errors and the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import StatelessLifespan

from .console.routes import console_routes
from .doors.azure.routes import azure_routes
from .doors.nemo_skills.routes import nemo_skills_routes
from .doors.rest.live_runs import LiveRuns
from .doors.rest.routes import rest_routes
from .doors.rest.session_actions import SessionActions
from .doors.sandbox_fusion.routes import sandbox_fusion_routes
from .http.caller_trace import CallerTrace
from .http.local_only import LocalOnly
from .http.metrics import Metrics
from .http.request_log import RequestLog
from .http.services import Services

_ERROR_CODES = {404: "NotFound", 405: "MethodNotAllowed"}
MCP_MISSING = "it needs the extra mcp. Install it: pip install 'cellblock[mcp]'"


def create_app(
    services: Services,
    more_routes: Sequence[BaseRoute] = (),
    lifespan: StatelessLifespan[Starlette] | None = None,
    *,
    has_console: bool = True,
) -> Starlette:
    """Return the application. Enter `services.store` before, and leave it after serving.

    `more_routes` come before those of the Azure door, which accept any prefix.
    """

    async def health(request: Request) -> Response:
        request.state.operation = "server.health"
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> Response:
        request.state.operation = "server.ready"
        if services.store.is_draining:
            return JSONResponse({"status": "stopping"}, 503)
        return JSONResponse({"status": "ready"})

    metrics, runs = Metrics(services), LiveRuns(services.store)
    actions = SessionActions(services.store, runs)
    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/ready", ready),
            metrics.route,
            *more_routes,
            *(console_routes(services, runs, actions) if has_console else ()),
            *rest_routes(services, runs, actions),
            *nemo_skills_routes(services),
            *sandbox_fusion_routes(services),
            *azure_routes(services),
        ],
        middleware=[
            Middleware(RequestLog),
            Middleware(CallerTrace),
            metrics.middleware,
            *([Middleware(LocalOnly)] if services.keys is None else []),
        ],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )
    app.state.stall_seconds = services.stall_seconds
    return app


def mcp_missing_route() -> Route:
    """Return the route /mcp of a server without the extra `mcp`."""

    async def mcp(request: Request) -> Response:
        request.state.operation = "mcp"
        message = f"This server has no MCP: {MCP_MISSING} on the machine of the server."
        return _error_answer(404, "NotFound", message)

    return Route("/mcp", mcp, methods=["GET", "POST", "DELETE"])


async def _http_error(_request: Request, error: Exception) -> Response:
    """Answer requests that no route accepts."""
    assert isinstance(error, HTTPException)
    code = _ERROR_CODES.get(error.status_code, "InvalidRequest")
    return _error_answer(error.status_code, code, f"{error.detail}.", error.headers)


def _error_answer(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    return JSONResponse(
        {"error": {"code": code, "message": message}},
        status,
        {**(headers or {}), "x-ms-error-code": code},
    )
