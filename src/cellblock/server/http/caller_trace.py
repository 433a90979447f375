"""CallerTrace: the spans of a request belong to the trace that its header `traceparent` names."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ...tracing import context_of, continued, is_on


class CallerTrace:
    """ASGI middleware. It does nothing unless the program records spans."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of ASGI."""
        is_request = scope["type"] == "http" and is_on()
        with continued(context_of(Request(scope).headers) if is_request else None):
            await self._app(scope, receive, send)
