"""The pages of API keys, for administrators."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ...limits import KIB, MIB
from ..http.services import Services
from ..keys.key_store import KeyInfo, KeyStore
from ..owners import Quotas
from ..refusals import Forbidden, InvalidRequest, PageNotFound
from ..state.usage import SECONDS_A_DAY
from .forms import read_form
from .gate import Visitor
from .pages import Pages, see_other

_MAX_FORM_BYTES = 16 * KIB
_MAX_DAYS = 36_500
_MAX_NUMBER = 2**31 - 1  # of what the database counts


class KeyPages:
    """List, create, change and revoke keys. Only the keys of administrators may."""

    def __init__(self, services: Services, pages: Pages) -> None:
        self._keys, self._pages = services.keys, pages

    async def show_keys(self, _request: Request, visitor: Visitor) -> Response:
        """Answer GET keys."""
        found = await asyncio.to_thread(self._checked(visitor).list_keys)
        return self._pages.answer("keys.html", visitor, keys=found)

    async def add_key(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST keys with the page that shows the new key, this one time."""
        keys, fields = self._checked(visitor), await read_form(request, _MAX_FORM_BYTES)
        days = _read_amount(fields, "days", _MAX_DAYS)
        add = partial(
            keys.add,
            fields.get("name", "").strip(),
            quotas=_read_quotas(fields),
            expires_at=None if days is None else int(time.time() + days * SECONDS_A_DAY),
            is_admin="admin" in fields,
            by=visitor.owner,
        )
        info, key = await asyncio.to_thread(add)
        return self._pages.answer("new_key.html", visitor, name=info.name, key=key)

    async def edit_key(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET keys/ID."""
        info = await self._find(request, visitor)
        return self._pages.answer("edit_key.html", visitor, key=info)

    async def change_key(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST keys/ID."""
        info, fields = await self._find(request, visitor), await read_form(request, _MAX_FORM_BYTES)
        change = partial(
            self._checked(visitor).change,
            info.id,
            name=fields.get("name", "").strip(),
            quotas=_read_quotas(fields),
            expires_at=_read_moment(fields, "expires_at"),
            is_admin="admin" in fields,
            by=visitor.owner,
        )
        await asyncio.to_thread(change)
        return see_other("/keys")

    async def confirm_revoke(self, request: Request, visitor: Visitor) -> Response:
        """Answer GET keys/ID/revoke."""
        info = await self._find(request, visitor)
        return self._pages.answer("revoke_key.html", visitor, key=info)

    async def revoke_key(self, request: Request, visitor: Visitor) -> Response:
        """Answer POST keys/ID/revoke."""
        info = await self._find(request, visitor)
        revoke = partial(self._checked(visitor).revoke, info.id, by=visitor.owner)
        await asyncio.to_thread(revoke)
        return see_other("/keys")

    async def _find(self, request: Request, visitor: Visitor) -> KeyInfo:
        """Return the key in the address. Raise `PageNotFound`."""
        for info in await asyncio.to_thread(self._checked(visitor).list_keys):
            if info.id == request.path_params["key_id"]:
                return info
        raise PageNotFound("There is no such key. See the page of keys.")

    def _checked(self, visitor: Visitor) -> KeyStore:
        """Return the keys. Raise `Forbidden` if the visitor is no administrator."""
        if self._keys is None or not visitor.is_admin:
            raise Forbidden(
                "Only keys of administrators may manage keys. "
                "`cellblock keys add NAME --admin` creates one."
            )
        return self._keys


def _read_quotas(fields: dict[str, str]) -> Quotas:
    disk = _read_amount(fields, "disk_mib", _MAX_NUMBER)
    return Quotas(
        sessions=_read_count(fields, "sessions"),
        running=_read_count(fields, "running"),
        cpu_seconds_a_day=_read_amount(fields, "cpu_seconds", _MAX_NUMBER),
        disk_bytes=None if disk is None else max(1, round(disk * MIB)),
    )


def _read_moment(fields: dict[str, str], name: str) -> int | None:
    """Return seconds since 1970; None if the field is empty. Raise `InvalidRequest`."""
    if not (text := fields.get(name, "").strip()):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())
    except ValueError:
        raise InvalidRequest(
            f"The field {name!r} must be a time such as 2026-01-31T12:00:00."
        ) from None


def _read_count(fields: dict[str, str], name: str) -> int | None:
    amount = _read_amount(fields, name, _MAX_NUMBER)
    if amount is not None and amount != int(amount):
        raise InvalidRequest(f"The field {name!r} must be a whole number.")
    return None if amount is None else int(amount)


def _read_amount(fields: dict[str, str], name: str, most: int) -> float | None:
    """Return a number above 0; None if the field is empty. Raise `InvalidRequest`."""
    text = fields.get(name, "").strip()
    if not text:
        return None
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 < amount <= most:
        raise InvalidRequest(f"The field {name!r} must be a number above 0, and at most {most}.")
    return amount
