"""Take active content out of HTML. Pure: no I/O.

The result has text, tables, embedded pictures, sounds and films, and links. Its attributes load
nothing and name nothing of the client's page, its styles stay in the output, and its formulas have
no command that would bring back what was taken out.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from xml.etree import ElementTree

import nh3

from .css import StyleCleaner, rename_class, rename_id
from .tex import part_commands

# Without `wbr`, across which clients read formulas.
_TAGS = (nh3.ALLOWED_TAGS - {"wbr"}) | {
    *("audio", "video", "source", "progress", "font", "label", "section", "tfoot", "main")
}
_PLAYER = {"controls", "loop", "muted", "autoplay", "width", "height", "src", "preload"}
_ATTRIBUTES = {
    **nh3.ALLOWED_ATTRIBUTES,
    "*": {"id", "class", "style", "title", "align", "valign", "dir", "lang"},
    "table": {"border", "align", "summary", "width", "cellpadding", "cellspacing"},
    "a": {"href", "hreflang", "target", "download"},
    "audio": _PLAYER,
    "video": _PLAYER,
    "source": {"src", "type"},
    "progress": {"max", "value"},
    "font": {"color", "size", "face"},
    "details": {"open"},
}
_DATA = r"[\w.+-]{1,40};base64,[A-Za-z0-9+/=\s]*"
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*")
_SOURCES = {
    "img": _IMAGE,
    **dict.fromkeys(("audio", "video", "source"), re.compile(rf"data:(?:audio|video)/{_DATA}")),
}
# Neither looks past the next start of the same tag, so that the time is linear.
_SVG = re.compile(r"<svg\b(?:(?!<svg\b).)*?</svg\s*>", re.IGNORECASE | re.DOTALL)
_SVG_NAMESPACE = "http://www.w3.org/2000/svg"
_STYLE = re.compile(r"<style\b[^<>]*>((?:(?!<style\b).)*?)</style\s*>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<([a-z][a-z0-9-]{0,30})", re.IGNORECASE)
_ALL_SCHEMES = {"http", "https", "mailto", "data", "javascript", "file", "ftp", "blob", "vbscript"}
_UNSEEN_CHARACTERS = re.compile(r"[\x00-\x20]+")  # browsers ignore them in addresses
# With these, what an output draws could reach out of its place. Clients cut it off at the edge of
# an element that no selector of the output names.
_PLACING = re.compile(r' (?:style|dir)="')
_FRAME = "overflow: auto; contain: content"
# Without them, HTML looks as it did.
_UNSEEN_TAGS = {"html", "head", "body", "title", "wbr"}
_UNSEEN_ATTRIBUTES = re.compile(
    r"id|class|for|name|role|rel|tabindex|type|xmlns|[hv]align|(?:data|aria)-.*"
)


@dataclass(frozen=True)
class CleanHtml:
    """HTML without active content.

    is_complete   False if something that can be seen was taken out
    is_empty      True if nothing that can be seen is left
    has_lost_style    True if the rules of a style sheet were taken out
    """

    text: str
    is_complete: bool = True
    is_empty: bool = False
    has_lost_style: bool = False


def clean_html(text: str) -> CleanHtml:
    """Return HTML without scripts, and without what loads something or leaves its output.

    SVG graphics become images, in which scripts do not run. With styles, the result is one element,
    at whose edge clients cut off what is drawn. The rules of style sheets are for what is in it.
    """
    text = _SVG.sub(lambda match: _svg_element_image(match[0]), text)
    found = _STYLE.findall(text)
    scope = f"T_{hashlib.sha256(''.join(found).encode(errors='replace')).hexdigest()[:16]}"
    styles = StyleCleaner()
    sheets = [styles.clean_sheet(css, scope) for css in found]
    rules = "\n".join(css for css, _ in sheets if css)
    text = _STYLE.sub("", text)
    cleaned = nh3.clean(
        text,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=functools.partial(_filter_attribute, styles),
        url_schemes={"http", "https", "mailto", "data"},
    )
    before = _Elements.of(_well_formed(text), styles.list_given)
    after = _Elements.of(cleaned, styles.list_kept)
    shown = part_commands(cleaned)
    if rules:
        shown = f'<div id="{scope}"><style>\n{rules}\n</style>\n{shown}</div>'
    if rules or _PLACING.search(cleaned):
        shown = f'<div style="{_FRAME}">{shown}</div>'
    is_styled = all(is_whole for _, is_whole in sheets)
    return CleanHtml(
        shown,
        is_complete=is_styled and not before.seen - after.seen,
        is_empty=not after.has_content,
        has_lost_style=any(not css and not is_whole for css, is_whole in sheets),
    )


def _well_formed(text: str) -> str:
    """Return HTML with all its elements, in a form that `HTMLParser` reads in linear time."""
    return nh3.clean(
        text,
        tags={name.lower() for name in _TAG.findall(text)},
        clean_content_tags=set(),
        generic_attribute_prefixes={""},
        url_schemes=_ALL_SCHEMES,
        link_rel=None,
    )


def svg_image(text: str) -> str:
    """Return an SVG file as an image in HTML."""
    content = base64.b64encode(text.encode(errors="replace")).decode()
    return f'<img src="data:image/svg+xml;base64,{content}">'


def _svg_element_image(text: str) -> str:
    """Return an SVG graphic as an image; as it is, which is then taken out, if it is not XML."""
    if "xmlns=" not in text.partition(">")[0]:
        text = f'{text[:4]} xmlns="{_SVG_NAMESPACE}"{text[4:]}'
    try:
        ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return text
    return svg_image(text)


def _filter_attribute(styles: StyleCleaner, tag: str, name: str, value: str) -> str | None:
    """Return the value of an attribute, or None to leave the attribute out."""
    match name:
        case "src":
            source = _SOURCES.get(tag)
            return value if source is not None and source.fullmatch(value) else None
        case "id":
            return rename_id(value)
        case "class":
            return " ".join(filter(None, map(rename_class, value.split()))) or None
        case "href":
            address = _UNSEEN_CHARACTERS.sub("", value).lower()
            return None if address.startswith("data:") else value
        case "target":
            return value if value == "_blank" else None
        case "style":
            return styles.clean_attribute(value) or None
        case _:
            return value


class _Elements(HTMLParser):
    """Count what of HTML can be seen: tags, attributes and the properties of `style`."""

    def __init__(self, list_properties: Callable[[str], list[str]]) -> None:
        super().__init__()
        self._list_properties = list_properties
        self.seen: Counter[tuple[str, ...]] = Counter()
        self.has_content = False

    @classmethod
    def of(cls, text: str, list_properties: Callable[[str], list[str]]) -> _Elements:
        """Return the elements of `text`. `list_properties` reads its `style` attributes."""
        elements = cls(list_properties)
        elements.feed(text)
        elements.close()
        return elements

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count a tag and its attributes."""
        if tag in _UNSEEN_TAGS:
            return
        self.seen[(tag,)] += 1
        self.has_content = self.has_content or tag in ("progress", "hr")
        for name, value in dict(attrs).items():
            if name == "style":
                for declared in self._list_properties(value or ""):
                    self.seen[tag, name, declared] += 1
            elif not _UNSEEN_ATTRIBUTES.fullmatch(name):
                self.seen[tag, name] += 1
                self.has_content = self.has_content or name == "src"

    def handle_data(self, data: str) -> None:
        """See whether there is text."""
        self.has_content = self.has_content or bool(data.strip())
