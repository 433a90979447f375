"""Take active content out of MIME bundles.

A client trusts the output of cells that its user runs. A script in it runs in the client's page,
from where it can start a kernel without a sandbox. So it would leave the sandbox through the
browser.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

import nh3

# Clients show these as text, or as pictures or data without scripts.
_INERT = re.compile(
    r"text/(?:plain|markdown|latex)|image/(?:png|jpeg|gif|webp)|application/(?:json|geo\+json)"
    r"|application/vnd\.(?:plotly\.v1|dataresource|vega(?:lite)?\.v\d+)\+json"
)
_SCRIPT = re.compile(r"<script\b", re.IGNORECASE)
_ATTRIBUTES = {
    **nh3.ALLOWED_ATTRIBUTES,
    "*": {"class", "style", "title", "align", "dir"},
    "table": {"border", "align", "summary"},
}
_STYLES = {
    *("color", "background-color", "font-family", "font-size", "font-style", "font-weight"),
    *("text-align", "text-decoration", "vertical-align", "white-space", "width", "height"),
    *("max-width", "max-height", "margin", "padding", "border", "border-color", "border-style"),
}
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*")


def clean_bundle(data: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a MIME bundle without active content, and whether a script was taken out.

    HTML is cleaned, also of what loads something from the network. An SVG picture becomes an image
    in HTML, where its scripts do not run. A type that is not known to be inert is left out.
    """
    cleaned, has_scripts = dict[str, Any](), False
    for mime, content in data.items():
        text = _join(content)
        if _INERT.fullmatch(mime):
            cleaned[mime] = content
        elif mime == "text/html" and text is not None:
            cleaned[mime] = _clean_html(text)
            has_scripts = has_scripts or _SCRIPT.search(text) is not None
        elif mime == "image/svg+xml" and text is not None:
            cleaned.setdefault("text/html", _svg_image(text))
        else:
            has_scripts = True
    return cleaned, has_scripts


def _clean_html(text: str) -> str:
    return nh3.clean(
        text,
        attributes=_ATTRIBUTES,
        attribute_filter=_filter_attribute,
        url_schemes={"http", "https", "mailto", "data"},
        filter_style_properties=_STYLES,
    )


def _filter_attribute(tag: str, name: str, value: str) -> str | None:
    """Return the value of an attribute, or None to leave the attribute out."""
    is_data = value.lstrip().lower().startswith("data:")
    if name == "src":
        return value if tag == "img" and _IMAGE.fullmatch(value) else None
    return None if is_data or (name == "style" and "(" in value) else value


def _svg_image(text: str) -> str:
    content = base64.b64encode(text.encode(errors="replace")).decode()
    return f'<img src="data:image/svg+xml;base64,{content}">'


def _join(content: object) -> str | None:
    """Return the text of a MIME type, which can be a list of lines; None if it is no text."""
    if isinstance(content, list):
        content = "".join(map(str, content))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - JSON
    return content if isinstance(content, str) else None
