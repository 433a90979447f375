"""Pages: the templates of the console, and what all of them know."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...visible_text import visible
from ..http.statuses import message_of, status_of
from ..refusals import InvalidRequest
from .gate import PREFIX, Visitor

FOLDER = Path(__file__).parent
_MAX_DIGITS = 9
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


class Pages:
    """Makes answers of templates, which escape all values."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        known = cast("dict[str, object]", self._environment.globals)
        known["prefix"] = PREFIX
        self._environment.filters.update(
            size=format_size, when=_format_time, iso=_iso_time, part=path_part, visible=visible
        )

    def answer(
        self, template: str, visitor: Visitor | None, http_status: int = 200, **values: Any
    ) -> Response:
        """Return a page. `visitor` is None before a visitor has signed in."""
        text = self._environment.get_template(template).render(visitor=visitor, **values)
        return HTMLResponse(text, http_status)

    def error(self, error: Exception, visitor: Visitor | None) -> Response:
        """Return the page for an error."""
        status = status_of(error)
        page = self.answer("error.html", visitor, status.status, message=message_of(error))
        page.headers.update(_without_challenge(status.headers))
        return page


@dataclass(frozen=True)
class Filters:
    """Which part of a long list a page shows.

    fields   the fields of the form above the list that are filled in, by name
    number   the number of the page, from 1 on
    """

    fields: Mapping[str, str]
    number: int

    @classmethod
    def read(cls, request: Request, *names: str) -> Filters:
        """Return the filters in the address of a request. Raise `InvalidRequest`."""
        given = {name: request.query_params.get(name, "").strip() for name in names}
        number = read_number(request.query_params.get("page", "1"))
        return cls({name: text for name, text in given.items() if text}, max(1, number))

    def get(self, name: str) -> str:
        """Return a field of the form; "" if it is empty."""
        return self.fields.get(name, "")

    def address(self, number: int) -> str:
        """Return the query of the address of another page of the list."""
        return f"?{urlencode({**self.fields, 'page': number})}"

    def of(self, total: int, size: int) -> Paging:
        """Return where the page is in a list of `total`, of which a page shows `size`."""
        pages = max(1, -(-total // size))
        return Paging(self, min(self.number, pages), pages, total, size)


@dataclass(frozen=True)
class Paging:
    """The place of a page in a list: page `number` of `pages`, which show `size` of `total`."""

    filters: Filters
    number: int
    pages: int
    total: int
    size: int

    @property
    def start(self) -> int:
        """How many of the list come before the page."""
        return (self.number - 1) * self.size


def read_number(text: str) -> int:
    """Return a number in an address. Raise `InvalidRequest`."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise InvalidRequest("The address of the page is not valid. Choose a page above.")
    return int(text)


def see_other(path: str) -> Response:
    """Return an answer that leads a browser to another page of the console with GET."""
    return RedirectResponse(f"{PREFIX}{path}", 303)


def path_part(text: str) -> str:
    """Return text as one part of the path of an address."""
    return quote(text, safe="")


def format_size(size: float) -> str:
    """Return a number of bytes for people."""
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"


def _without_challenge(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name != "WWW-Authenticate"}


def _format_time(moment: datetime | float) -> str:
    """Return a time for people, in UTC."""
    return _to_time(moment).strftime("%Y-%m-%d %H:%M:%S UTC")


def _iso_time(moment: datetime | float) -> str:
    return _to_time(moment).strftime("%Y-%m-%dT%H:%M:%SZ")


def _to_time(moment: datetime | float) -> datetime:
    return moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)


def now() -> datetime:
    """Return the present time."""
    return datetime.fromtimestamp(time.time(), UTC)
