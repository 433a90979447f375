"""Pages: the templates of the console, and what all of them know."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...visible_text import visible
from ..http.statuses import message_of, status_of
from .gate import PREFIX, Visitor

FOLDER = Path(__file__).parent
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
