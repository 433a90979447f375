"""Take active content out of MIME bundles.

A client trusts the output of cells that its user runs. A script in it runs in the client's page,
from where it can start a kernel without a sandbox. So it would leave the sandbox through the
browser. A request to the network can carry data out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from .charts import clean_chart
from .html import clean_html, svg_image
from .markdown import markdown_html
from .tex import clean_tex

_PICTURE = re.compile(r"image/(?:png|jpeg|gif|webp)")
# Clients put it into an attribute, which it cannot end.
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*", re.ASCII)
_WIDGET = "application/vnd.jupyter.widget-view+json"
# What Python shows of an object without a `__repr__`.
_OBJECT_TEXT = re.compile(r"<[\w.]+ object.*>")


@dataclass(frozen=True)
class CleanBundle:
    """A MIME bundle without active content.

    is_complete   False if something was left out that the other types do not show
    has_widget    True if it shows a widget, which exists in the sandbox only
    has_chart     True if it has a chart that clients draw from data
    """

    data: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    is_complete: bool = True
    has_widget: bool = False
    has_chart: bool = False


def drop_widgets(data: Mapping[str, Any], metadata: Mapping[str, Any]) -> CleanBundle:
    """Return a MIME bundle without a widget: clients show its text instead."""
    return CleanBundle(
        {mime: content for mime, content in data.items() if mime != _WIDGET},
        dict(metadata),
        has_widget=_WIDGET in data,
    )


def clean_bundle(data: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> CleanBundle:
    """Return a MIME bundle without active content.

    Each type is cleaned in its own way. Markdown and SVG pictures become HTML, unless there is HTML
    as well. A type that is not known is left out, and so is HTML that needs what was taken out.
    """
    shown = drop_widgets(data, metadata or {})
    parts = {mime: _clean(mime, content, data) for mime, content in shown.data.items()}
    cleaned = dict[str, Any]()
    for mime, (content, _) in parts.items():
        if content is not None and mime not in _BECOME_HTML:
            cleaned[mime] = content
    for mime in _BECOME_HTML:
        if mime in parts and parts[mime][0] is not None:
            cleaned.setdefault("text/html", parts[mime][0])
    has_chart = any(mime.startswith("application/vnd.") for mime in cleaned)
    return CleanBundle(
        cleaned,
        _clean_metadata(shown.metadata, cleaned),
        is_complete=has_chart or all(is_complete for _, is_complete in parts.values()),
        has_widget=shown.has_widget,
        has_chart=has_chart,
    )


_BECOME_HTML = ("text/markdown", "image/svg+xml")


def _clean(mime: str, content: object, data: Mapping[str, Any]) -> tuple[object, bool]:
    """Return the safe part of one type's content, or None, and whether that is all of it."""
    text = _join(content)
    match mime:
        case "application/json":  # clients show it as a tree of text
            return content, True
        case "text/plain" if text is not None:
            return text, True
        case "text/latex" if text is not None:
            return clean_tex(text), True
        case "text/html" if text is not None:
            return _clean_page(text, data)
        case "text/markdown" if text is not None:
            return _clean_page(markdown_html(text), data)
        case "image/svg+xml" if text is not None:
            return svg_image(text), True
        case _ if text is not None and _PICTURE.fullmatch(mime):
            is_picture = _BASE64.fullmatch(text) is not None
            return (text if is_picture else None), is_picture
        case _:
            chart = clean_chart(mime, content)
            return chart, chart is not None


def _clean_page(text: str, data: Mapping[str, Any]) -> tuple[str | None, bool]:
    html = clean_html(text)
    needs_style = html.has_lost_style and _has_own_text(data)
    is_useful = html.is_complete or not (html.is_empty or needs_style)
    return (html.text if is_useful else None), html.is_complete


def _clean_metadata(metadata: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what clients know of a bundle and of its types: sizes and flags.

    Others can act: `isolated` shows HTML as it was, and options of charts name what to load.
    """
    kept = {name: value for name, value in metadata.items() if _is_known(name, value)}
    for mime, entries in metadata.items():
        if mime in data and isinstance(entries, Mapping):
            entries = cast("Mapping[str, Any]", entries)
            if known := {name: value for name, value in entries.items() if _is_known(name, value)}:
                kept[mime] = known
    return kept


def _is_known(name: str, value: object) -> bool:
    match name:
        case "width" | "height":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "unconfined" | "expanded":
            return isinstance(value, bool)
        case "needs_background":
            return value in ("light", "dark")
        case _:
            return False


def _has_own_text(data: Mapping[str, Any]) -> bool:
    text = _join(data.get("text/plain"))
    return bool(text) and _OBJECT_TEXT.fullmatch(text or "") is None


def _join(content: object) -> str | None:
    """Return the text of a MIME type, which can be a list of lines; None if it is not text."""
    if isinstance(content, list):
        content = "".join(map(str, content))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON
    return content if isinstance(content, str) else None
