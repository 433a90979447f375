"""Take out of CSS what could change more than the output that it belongs to, or load something.

tinycss2 parses it, and the output is written anew from the parts that are known to be harmless. All
rules are limited to one element, in which ids and classes that could be those of a client's page
have other names. Pure: no I/O.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import tinycss2

_FAMILIES = (
    "align background border break caption column columns counter flex font gap grid hyphens "
    "justify letter line list-style margin overflow padding page-break place quotes row table "
    "text vertical white-space word"
)
_PROPERTY = re.compile(
    rf"(?:{'|'.join(_FAMILIES.split())})(?:-[a-z-]+)?|--[\w-]+|"
    "(?:(?:min|max)-)?(?:width|height|(?:inline|block)-size)|"
    "accent-color|aspect-ratio|box-sizing|clear|color|content|cursor|direction|display|"
    "empty-cells|float|object-fit|opacity|order|position|tab-size|unicode-bidi|visibility|"
    "writing-mode"
)
# Without them, an output looks much as it did.
_UNSEEN_PROPERTY = re.compile(
    r"(?:-webkit|-moz|-ms|-o|mso|animation|box-shadow|outline|pointer|scroll|scrollbar|"
    r"text-rendering|text-shadow|transition|user-select|will-change|z-index)(?:-.*)?"
)
_UNSEEN_RULES = {"charset", "keyframes", "-webkit-keyframes", "page"}
_POSITIONS = {"static", "relative", "initial", "unset"}  # others leave the output
# Negative values of these move something out of the output.
_MOVING = re.compile(r"margin.*|--.*|text-indent|(?:letter|word)-spacing|background-position.*")
_FUNCTIONS = set(  # `font-color` does not exist, but great_tables writes it
    "calc clamp color-mix conic-gradient counter counters fit-content font-color hsl hsla hwb lab "
    "lch linear-gradient max min minmax oklab oklch radial-gradient repeat "
    "repeating-linear-gradient rgb rgba var".split()
)
_PLAIN = {"whitespace", "comment", "ident", "string", "hash", "() block", "[] block"}
_WHOLE_PAGE = {"html", "body"}
# The form of the ids of pandas' Styler. Others could stand for elements of the client's page.
_ID = re.compile(r"T_[\w-]{1,80}", re.ASCII)
# The classes of pandas' tables. Others could be those of a client's dialogs and menus.
_CLASS = re.compile(
    r"dataframe|data|blank|foot|pd-t|index_name|(?:row|col)_(?:heading|trim)|(?:row|col|level)\d+"
)
_NAME = re.compile(r"[\w-]{1,80}", re.ASCII)


def rename_id(name: str) -> str | None:
    """Return what an id is called in an output, or None if it is left out."""
    return name if _ID.fullmatch(name) else _rename(name)


def rename_class(name: str) -> str | None:
    """Return what a class is called in an output, or None if it is left out."""
    return name if _CLASS.fullmatch(name) else _rename(name)


def _rename(name: str) -> str | None:
    return f"T_{name}" if _NAME.fullmatch(name) else None


def clean_css(text: str, scope: str) -> tuple[str, bool]:
    """Return the rules of a style sheet for what is in the element with the id `scope`.

    The second value says whether that is all that can be seen of it.
    """
    try:
        return _clean_rules(_parse_rules(text), scope)
    except RecursionError:
        return "", False


@functools.lru_cache(maxsize=1000)
def clean_declarations(text: str) -> str:
    """Return the harmless part of the content of a rule or of a `style` attribute."""
    try:
        return _clean_body(_parse_declarations(text))
    except RecursionError:
        return ""


@functools.lru_cache(maxsize=1000)
def list_visible_properties(text: str) -> list[str]:
    """Return the properties that change how something looks, once for each time."""
    return _list_visible(_parse_declarations(text))


def _clean_body(nodes: Iterable[Any]) -> str:
    return "; ".join(filter(None, map(_clean_declaration, nodes)))


def _list_visible(nodes: Iterable[Any]) -> list[str]:
    names = (getattr(node, "lower_name", "?") for node in nodes)
    return [name for name in names if not _UNSEEN_PROPERTY.fullmatch(name)]


def _parse_rules(content: Any) -> list[Any]:
    parse: Any = tinycss2.parse_stylesheet if isinstance(content, str) else tinycss2.parse_rule_list
    return parse(content, skip_comments=True, skip_whitespace=True)


def _parse_declarations(content: Any) -> list[Any]:
    parse: Any = tinycss2.parse_declaration_list
    return parse(content, skip_comments=True, skip_whitespace=True)


def _serialize(nodes: Iterable[Any]) -> str:
    """Return the text of nodes; "" if it could end the element `style`."""
    write: Any = tinycss2.serialize
    text: str = write([node for node in nodes if node.type != "comment"])
    return "" if "<" in text else " ".join(text.split())


def _clean_rules(rules: list[Any], scope: str) -> tuple[str, bool]:
    kept, is_complete = list[str](), True
    for rule in rules:
        text, is_whole = "", False
        if rule.type == "qualified-rule":
            text, is_whole = _clean_rule(rule, scope)
        elif rule.type == "at-rule" and rule.lower_at_keyword == "media" and rule.content:
            inner, is_whole = _clean_rules(_parse_rules(rule.content), scope)
            if inner and (query := _serialize(rule.prelude)):
                text = f"@media {query} {{\n{inner}\n}}"
        elif rule.type == "at-rule":
            is_whole = rule.lower_at_keyword in _UNSEEN_RULES
        is_complete = is_complete and is_whole
        if text:
            kept.append(text)
    return "\n".join(kept), is_complete


def _clean_rule(rule: Any, scope: str) -> tuple[str, bool]:
    selectors = [_limit_selector(selector, scope) for selector in _split_selectors(rule.prelude)]
    declarations = _parse_declarations(rule.content)
    body, before = _clean_body(declarations), _list_visible(declarations)
    is_whole = all(selectors) and len(list_visible_properties(body)) == len(before)
    if not body or not all(selectors):
        return "", is_whole
    return f"{', '.join(map(str, selectors))} {{ {body} }}", is_whole


def _split_selectors(prelude: list[Any]) -> list[list[Any]]:
    parts: list[list[Any]] = [[]]
    for node in prelude:
        if node == ",":
            parts.append([])
        else:
            parts[-1].append(node)
    return parts


def _limit_selector(nodes: list[Any], scope: str) -> str | None:
    """Return a selector for what is in `scope`, or None."""
    selector = _serialize(_rename_in_selector(nodes))
    first = re.match(r":root(?![\w-])|\w+(?![\w-])", selector)
    if first is not None and first[0].lower() in (*_WHOLE_PAGE, ":root"):
        return f"#{scope}{selector[first.end() :]}"
    return f"#{scope} {selector}" if selector else None


def _rename_in_selector(nodes: list[Any]) -> Iterator[Any]:
    """Yield the nodes of a selector. Ids and classes have the names that they have in an output."""
    is_class = False
    for node in nodes:
        if node.type == "hash":
            node.value = rename_id(node.value) or "T_"
        elif node.type == "ident" and is_class:
            node.value = rename_class(node.value) or "T_"
        elif node.type == "function":
            node.arguments = list(_rename_in_selector(node.arguments))
        is_class = node == "."
        yield node


def _clean_declaration(node: Any) -> str:
    if node.type != "declaration" or not _PROPERTY.fullmatch(name := node.lower_name):
        return ""
    value = _serialize(node.value)
    if not value or not _is_harmless(node.value, is_moving=bool(_MOVING.fullmatch(name))):
        return ""
    if name == "position" and value.lower() not in _POSITIONS:
        return ""
    return f"{name}: {value}{' !important' if node.important else ''}"


def _is_harmless(nodes: Iterable[Any], *, is_moving: bool) -> bool:
    """Return True if a value loads nothing, and moves nothing out of its output."""
    return all(
        _is_harmless_part(node, is_moving=is_moving)
        and _is_harmless(_parts_of(node), is_moving=is_moving)
        for node in nodes
    )


def _is_harmless_part(node: Any, *, is_moving: bool) -> bool:
    match node.type:
        case "number" | "percentage" | "dimension":
            return not is_moving or node.value >= 0
        case "literal":
            return not is_moving or node != "-"
        case "function":
            return node.lower_name in _FUNCTIONS
        case kind:
            return kind in _PLAIN


def _parts_of(node: Any) -> list[Any]:
    if node.type == "function":
        return node.arguments
    return node.content if node.type in ("() block", "[] block") else []
