"""Show a result in a notebook: its output as text, its displays as pictures and pages."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Mapping
from typing import Any

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")

# The frame allows no scripts. This allows nothing to be loaded either, nor the names of servers to
# be looked up.
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'unsafe-inline'; img-src data:; media-src data:; font-src data:\">"
    '<meta http-equiv="x-dns-prefetch-control" content="off">'
)
# A page of plotly is some megabytes of script, which does not run here.
_FIGURE = "application/vnd.plotly.v1+json"
_FIGURE_NOTE = "<p>A figure of plotly: its page is one of output_files.</p>"
_LINK = re.compile(r"<(?=link\b)", re.IGNORECASE | re.ASCII)  # can open connections


def result_html(output: str, displays: Iterable[Mapping[str, Any]]) -> str:
    """Return HTML that shows `output` and the pictures and pages among `displays`.

    It runs no scripts of theirs and loads nothing: pages are shown in frames that allow neither.
    """
    parts = [f"<pre>{html.escape(output)}</pre>"] if output else []
    parts += [shown for data in displays if (shown := _display_html(data))]
    return "\n".join(parts)


def _display_html(data: Mapping[str, Any]) -> str:
    for mime in _PICTURES:
        if content := _text(data.get(mime)):
            if mime == "image/svg+xml":
                content = base64.b64encode(content.encode(errors="replace")).decode()
            return f'<img src="data:{mime};base64,{html.escape("".join(content.split()))}">'
    if page := _text(data.get("text/html")):
        if _FIGURE in data:
            return _FIGURE_NOTE
        page = _POLICY + _LINK.sub("<no-", page)
        return (
            f'<iframe sandbox srcdoc="{html.escape(page)}" width="100%" height="300" '
            'frameborder="0"></iframe>'
        )
    return ""


def _text(value: object) -> str:
    """Return a value of a MIME bundle as text: it is text or a list of lines."""
    if isinstance(value, list):
        return "".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType] - any JSON
    return value if isinstance(value, str) else ""
