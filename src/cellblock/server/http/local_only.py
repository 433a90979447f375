"""LocalOnly: protect a server without keys from web pages in a browser on the same machine.

A page of any site can send requests to a loopback address, directly or under a name that it makes
resolve to it. A browser then sends the origin or the name of that site.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_MESSAGE = (
    "This server has no keys, so it accepts only requests for a loopback address that do not come "
    "from the pages of another site."
)


class LocalOnly:
    """ASGI middleware that answers 403 to requests for other hosts or from other origins."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of ASGI."""
        if scope["type"] != "http" or _is_local(Request(scope)):
            await self._app(scope, receive, send)
            return
        answer = JSONResponse({"error": {"code": "Forbidden", "message": _MESSAGE}}, 403)
        await answer(scope, receive, send)


def is_loopback(host: str | None) -> bool:
    """Return True if `host` is localhost or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _is_local(request: Request) -> bool:
    origin = request.headers.get("origin")
    return _is_local_url(f"//{request.headers.get('host', '')}") and (
        origin is None or _is_local_url(origin)
    )


def _is_local_url(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname)
    except ValueError:
        return False
