"""Services: what every door gets, and who makes a request."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field, replace

from sqlalchemy import Engine
from starlette.requests import Request

from ..keys.key_store import KeyStore
from ..owners import ANONYMOUS, Owner
from ..refusals import NotAuthenticated
from ..sessions.store import SessionStore
from .serving.open_requests import OpenRequests

_KEY_HEADERS = ("x-api-key", "x-ms-apikey")


@dataclass(frozen=True)
class Services:
    """The session store, the keys, the database of both, and the open requests.

    Without keys, there is no database, and all requests have one anonymous owner. A client that
    sends nothing of a body for `stall_seconds` is given up.
    """

    store: SessionStore
    keys: KeyStore | None = None
    stall_seconds: float = 30.0
    state: Engine | None = None
    requests: OpenRequests = field(default_factory=OpenRequests)

    async def find_owner(self, request: Request, door: str) -> Owner:
        """Return the owner of a request, which came through `door`.

        The key is its bearer token, its basic password (clients that know only a URL send that of
        the URL), or the header `x-api-key`.

        Raise `NotAuthenticated`.
        """
        if self.keys is None:
            return replace(ANONYMOUS, door=door)
        owner = await self.keys.find_owner(_read_key(request))
        request.state.key_id = owner.id
        return replace(owner, door=door)


def _read_key(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if scheme.lower() == "basic" and (key := _password(token)):
        return key
    for name in _KEY_HEADERS:
        if key := request.headers.get(name):
            return key
    raise NotAuthenticated(
        "The request has no API key. Send the header 'Authorization: Bearer KEY'."
    )


def _password(token: str) -> str:
    """Return the password of basic authentication; "" if the token is damaged."""
    try:
        return base64.b64decode(token.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""
