"""Serve MCP over streamable HTTP: one route for the application of the server."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from ...http.endpoints import json_error
from ...http.services import Services
from ...owners import Owner
from ...refusals import NotAuthenticated
from ...sessions.store import SessionStore
from .server import SandboxServer

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class McpDoor:
    """The MCP endpoint of a server: a `route` for its routes, and the `lifespan` that it needs.

    The owner of a request is that of its API key. Without keys, requests whose Host header is not
    loopback are refused, so that no web page can reach the server through the user's browser.
    """

    def __init__(
        self, services: Services, path: str = "/mcp", *, confirm: bool = False, advice: str = ""
    ) -> None:
        self._services = services
        self._server = SandboxServer(self._get_store, confirm=confirm, advice=advice)
        self._server.streamable_http_app(  # makes the session manager
            transport_security=_security(services),
            max_request_body_size=services.store.settings.max_body_bytes,
        )
        self.path, self.route = path, Route(path, _Endpoint(self))

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        """Accept requests for the time of the context."""
        async with self._server.session_manager.run():
            yield

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with status 401 if it has no valid key."""
        request = Request(scope, receive)
        request.state.operation = "mcp"
        try:
            owner = await self._services.find_owner(request, "mcp")
        except NotAuthenticated as error:
            await json_error(error)(scope, receive, send)
            return
        request.state.owner = owner
        async with _completed(send) as send_and_note:
            await self._server.session_manager.handle_request(
                {**scope, "user": _user(owner)}, receive, send_and_note
            )

    async def _get_store(self) -> SessionStore:
        return self._services.store


class _Endpoint:
    """A class, so that Starlette passes the raw ASGI call on."""

    def __init__(self, door: McpDoor) -> None:
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._door.handle(scope, receive, send)


@contextlib.asynccontextmanager
async def _completed(send: Send) -> AsyncGenerator[Send]:
    """Yield a `send`, and complete its answer: the end of the server cuts event streams off."""
    is_open = False

    async def send_and_note(message: Message) -> None:
        nonlocal is_open
        is_open = message["type"] == "http.response.start" or bool(message.get("more_body"))
        await send(message)

    yield send_and_note
    if is_open:
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _user(owner: Owner) -> AuthenticatedUser:
    """Return the user to whom the SDK binds its transport sessions."""
    return AuthenticatedUser(AccessToken(token="", client_id=owner.id, scopes=[]))


def _security(services: Services) -> TransportSecuritySettings:
    if services.keys is not None:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    return TransportSecuritySettings(
        allowed_hosts=[f"{host}:*" for host in _LOOPBACK],
        allowed_origins=[f"http://{host}:*" for host in _LOOPBACK],
    )
