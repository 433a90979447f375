"""Take active content out of MIME bundles.

A client trusts the output of cells that its user runs. A script in it runs in the client's page,
from where it can start a kernel without a sandbox. So it would leave the sandbox through the
browser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .safe_html import clean_html, svg_image

# Clients show these as text, or as pictures or data without scripts.
_INERT = re.compile(
    r"text/(?:plain|markdown|latex)|image/(?:png|jpeg|gif|webp)|application/(?:json|geo\+json)"
    r"|application/vnd\.(?:plotly\.v1|dataresource|vega(?:lite)?\.v\d+)[+.]json"
)
_CHART = "application/vnd."
_WIDGET = "application/vnd.jupyter.widget-view+json"
# What Python shows of an object that has no text of its own.
_OBJECT_TEXT = re.compile(r"<[\w.]+ object.*>")


@dataclass(frozen=True)
class CleanBundle:
    """A MIME bundle without active content.

    is_complete   False if something was left out that the other types do not show
    has_widget    True if it shows a widget, which exists in the sandbox only
    has_chart     True if it has a chart that clients draw from data
    """

    data: dict[str, Any]
    is_complete: bool = True
    has_widget: bool = False
    has_chart: bool = False


def drop_widgets(data: Mapping[str, Any]) -> CleanBundle:
    """Return a MIME bundle without a widget: clients show its text instead."""
    return CleanBundle(
        {mime: content for mime, content in data.items() if mime != _WIDGET},
        has_widget=_WIDGET in data,
    )


def clean_bundle(data: Mapping[str, Any]) -> CleanBundle:
    """Return a MIME bundle without active content.

    HTML is cleaned. An SVG picture becomes an image in HTML, where its scripts do not run. A type
    that is not known to be inert is left out, and so is HTML that needs what was taken out of it.
    """
    cleaned, is_complete = dict[str, Any](), True
    shown = drop_widgets(data)
    for mime, content in shown.data.items():
        text = _join(content)
        if _INERT.fullmatch(mime):
            cleaned[mime] = content
        elif mime == "text/html" and text is not None:
            html = clean_html(text)
            is_complete = is_complete and html.is_complete
            needs_style = html.has_lost_style and _has_own_text(data)
            if html.is_complete or not (html.is_empty or needs_style):
                cleaned[mime] = html.text
        elif mime == "image/svg+xml" and text is not None:
            cleaned.setdefault("text/html", svg_image(text))
        else:
            is_complete = False
    has_chart = any(mime.startswith(_CHART) for mime in cleaned)
    return CleanBundle(cleaned, is_complete or has_chart, shown.has_widget, has_chart)


def _has_own_text(data: Mapping[str, Any]) -> bool:
    text = _join(data.get("text/plain"))
    return bool(text) and _OBJECT_TEXT.fullmatch(text or "") is None


def _join(content: object) -> str | None:
    """Return the text of a MIME type, which can be a list of lines; None if it is no text."""
    if isinstance(content, list):
        content = "".join(map(str, content))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON
    return content if isinstance(content, str) else None
