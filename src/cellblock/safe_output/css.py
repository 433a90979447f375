"""Take out of CSS what could change more than the output that it belongs to.

The output is rebuilt from parts that are known to be harmless. Pure: no I/O.
"""

from __future__ import annotations

import re

_PROPERTIES = {
    *("color", "background", "background-color", "font", "font-family", "font-size", "font-style"),
    *("font-weight", "line-height", "text-align", "text-decoration", "text-transform"),
    *("vertical-align", "white-space", "word-break", "width", "min-width", "max-width"),
    *("height", "min-height", "max-height", "opacity", "border-collapse", "border-spacing"),
    *("border-color", "border-style", "border-width", "border-radius", "caption-side"),
    *(f"{name}-{side}" for name in ("margin", "padding", "border") for side in ("top", "bottom")),
    *(f"{name}-{side}" for name in ("margin", "padding", "border") for side in ("left", "right")),
    *("margin", "padding", "border"),
}
# The form of the ids of pandas' Styler. Others could stand for elements of the client's page.
STYLER_ID = re.compile(r"T_[\w-]{1,80}", re.ASCII)
# The classes of pandas' tables. Others could be those of a client's dialogs and menus.
STYLER_CLASS = re.compile(
    r"dataframe|data|blank|foot|pd-t|index_name|(?:row|col)_(?:heading|trim)|(?:row|col|level)\d+"
)
_COMMENT = re.compile(r"/\*(?:(?!/\*).)*?\*/", re.DOTALL)
# Elements in the one with the id. `+` and `~` would reach its siblings.
_SELECTOR = re.compile(rf"#{STYLER_ID.pattern}(?:[\s.:>#][\w\s.:>#*()-]*)?", re.ASCII)
_FUNCTION = re.compile(r"(?<![\w\\-])(?:linear-gradient|rgba?|hsla?)\(")
_VALUE = re.compile(r"(?:[\w\s#.,%!+/()-]|'[\w\s-]*'|\"[\w\s-]*\")+", re.ASCII)
_NEGATIVE = re.compile(r"(?<!\w)-[\s\d.]")  # it can move an element out of the output


_DEFAULTS = {"vertical-align", "text-align", "white-space"}
_CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")


def clean_css(text: str) -> tuple[str, bool]:
    """Return the rules for elements with an id of pandas' Styler, and whether that is all."""
    rest = _COMMENT.sub(" ", text)
    if "@" in rest:
        return "", False
    *parts, end = rest.split("}")
    rules, is_complete = list[str](), not end.strip()
    for selectors, _, body in (part.partition("{") for part in parts):
        if "{" in body:
            is_complete = False
        elif _select_output(selectors):
            kept = clean_declarations(body)
            rules.append(f"{' '.join(selectors.split())} {{ {kept} }}")
            has_known_classes = all(map(STYLER_CLASS.fullmatch, _CLASS.findall(selectors)))
            is_whole = has_known_classes and len(_split(kept)) == len(_split(body))
            is_complete = is_complete and is_whole
        else:
            is_complete = is_complete and _is_default(selectors, body)
    return "\n".join(rules), is_complete


def clean_declarations(text: str) -> str:
    """Return the harmless part of the content of a rule or of a `style` attribute."""
    return "; ".join(line for line in _split(text) if _is_harmless(line))


def _split(declarations: str) -> list[str]:
    return [line.strip() for line in declarations.split(";") if line.strip()]


def _is_default(selectors: str, body: str) -> bool:
    """Return True for rules that pandas and polars add to each table. Clients have their own."""
    names = {line.partition(":")[0] for line in _split(body)}
    return selectors.strip().startswith(".dataframe ") and names <= _DEFAULTS


def _select_output(selectors: str) -> bool:
    return selectors.count("(") == selectors.count(")") and all(
        _SELECTOR.fullmatch(selector.strip()) for selector in selectors.split(",")
    )


def _is_harmless(declaration: str) -> bool:
    name, _, value = declaration.partition(":")
    return (
        name.strip().lower() in _PROPERTIES
        and _VALUE.fullmatch(value) is not None
        and value.count("(") == value.count(")")
        and "(" not in _FUNCTION.sub("", value)
        and _NEGATIVE.search(value) is None
    )
