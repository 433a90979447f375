"""Gate: who looks at a page, and whether a request comes from a page of the console."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ..http.services import Services
from ..keys.key_store import KeyInfo, digest_of
from ..owners import ANONYMOUS, Owner
from ..refusals import Forbidden, NotAuthenticated
from ..state.records import AuditRecord
from .sign_ins import SIGN_IN_SECONDS, SignIns

PREFIX = "/console"
DOOR = "console"
_PAGES = (("playground", "Playground"), ("sessions", "Sessions"))
_RECORD_PAGES = (("usage", "Usage"), ("log", "Log"))
_ADMIN_PAGES = (("keys", "Keys"),)
_SAFE_METHODS = ("GET", "HEAD")


@dataclass(frozen=True)
class Visitor:
    """Who looks at a page. `key_name` is None on a server without keys."""

    owner: Owner
    key_name: str | None = None

    @property
    def is_admin(self) -> bool:
        """Whether the key may manage all keys, and see what they have done."""
        return self.owner.is_admin

    @property
    def pages(self) -> tuple[tuple[str, str], ...]:
        """The paths and the names of the pages that the visitor may see."""
        if self.key_name is None:
            return _PAGES
        return (*_PAGES, *_RECORD_PAGES, *(_ADMIN_PAGES if self.is_admin else ()))


class Gate:
    """Sign visitors in and out, and recognise them."""

    def __init__(self, services: Services) -> None:
        self._services, self._sign_ins = services, SignIns()

    @property
    def needs_keys(self) -> bool:
        """Whether visitors have to sign in."""
        return self._services.keys is not None

    async def identify(self, request: Request) -> Visitor:
        """Return who has sent a request. Raise `NotAuthenticated`.

        The key is looked up each time: a revoked one is refused within a second.
        """
        keys = self._services.keys
        if keys is None:
            return Visitor(replace(ANONYMOUS, door=DOOR))
        sign_in = self._sign_ins.find(request.cookies.get(_cookie_name(request), ""))
        if sign_in is None:
            raise NotAuthenticated("Sign in to see this page.")
        info = await keys.find_active(sign_in.key_digest)
        request.state.key_id = info.id
        return Visitor(replace(info.owner, door=DOOR), info.name)

    async def sign_in(self, request: Request, key: str, answer: Response) -> None:
        """Set the cookie of a new sign-in, and record it.

        Raise `NotAuthenticated` if the key is not valid, `BackendError` if it cannot be recorded.
        """
        assert self._services.keys is not None, "a server without keys has no form to sign in"
        digest = digest_of(key)
        info = await self._services.keys.find_active(digest)
        request.state.key_id = info.id
        self._record(info)
        self._sign_ins.end(request.cookies.get(_cookie_name(request), ""))
        _set_cookie(request, answer, self._sign_ins.add(info.id, digest), SIGN_IN_SECONDS)

    def _record(self, key: KeyInfo) -> None:
        journal = self._services.store.journal
        journal.check_records()
        journal.add_action(
            AuditRecord(
                time=time.time(), key_id=key.id, key_name=key.name, door=DOOR, action="sign-in"
            )
        )

    def sign_out(self, request: Request, answer: Response) -> None:
        """End the sign-in of a request."""
        self._sign_ins.end(request.cookies.get(_cookie_name(request), ""))
        _set_cookie(request, answer, "", 0)


def check_origin(request: Request) -> None:
    """Raise `Forbidden` if a request that changes something was sent by a page of another site.

    Browsers say where it comes from: in `Sec-Fetch-Site` where they trust the connection, and
    always in `Origin` (https://owasp.org/www-community/attacks/csrf, "Fetch Metadata").
    """
    if request.method in _SAFE_METHODS:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "")
    if site is not None:
        is_own = site == "same-origin"
    else:
        is_own = _host_of(origin) == request.headers.get("host", "").lower() != ""
    if not is_own:
        raise Forbidden("This form was sent by a page of another site. Open the console again.")


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _cookie_name(request: Request) -> str:
    # Browsers accept `__Host-` over TLS only, and then from this host alone.
    return "__Host-cellblock" if request.url.scheme == "https" else "cellblock"


def _set_cookie(request: Request, answer: Response, token: str, seconds: int) -> None:
    is_secure = request.url.scheme == "https"
    answer.set_cookie(
        _cookie_name(request),
        token,
        max_age=seconds,
        path="/" if is_secure else PREFIX,
        secure=is_secure,
        httponly=True,
        samesite="strict",
    )
