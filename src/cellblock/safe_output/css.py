"""Take out of CSS what could change more than the output that it belongs to, or load something.

tinycss2 parses it, and the output is written anew from the parts that are known to be harmless. All
rules are limited to one element, in which ids and classes that could be those of a client's page
have other names. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tinycss2
from tinycss2.ast import WhitespaceToken

MAX_CHARACTERS = 100_000  # of the styles of one output: about a second of one processor
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
_PLAIN = {"whitespace", "comment", "string", "hash", "() block", "[] block"}
# Numbers of any size, with which `calc` reaches what negative numbers would.
_ENDLESS = {"infinity", "-infinity", "nan"}
# The tokens that are written: browsers read them as tinycss2 has read them.
_IDENT = re.compile(r"--[\w-]+|-?[^\W\d][\w-]*")
_UNIT = re.compile(r"(?!e(?:-|$))[^\W\d][\w-]*", re.IGNORECASE)
_HASH = re.compile(r"[\w-]+")
_STRING = re.compile(r"[^<\x00-\x09\x0b-\x1f\x7f\ud800-\udfff]*")
_SPACE = {"whitespace", "comment"}
_IN_SELECTORS = set[str](". : , > + ~ * = ^= $= *= ~= |=".split())
_IN_QUERIES = set[str](": , > = /".split())
_IN_VALUES = set[str](", / + - *".split())
_WHOLE_PAGE = {"html", "body"}
# A selector for a sibling of the element with the output: `x` is the name of an element.
_SIBLING = re.compile(r"x[^ >+~]* *[+~]")
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


@dataclass(frozen=True)
class _Declarations:
    """The harmless part of declarations.

    given   the properties that change how something looks, once for each time
    kept    those of them that are in `text`
    """

    text: str = ""
    given: list[str] = field(default_factory=list[str])
    kept: list[str] = field(default_factory=list[str])


_UNREAD = _Declarations(given=["?"])


class StyleCleaner:
    """Clean the style sheets and `style` attributes of one output.

    If their texts have more than `MAX_CHARACTERS` together, what does not fit is taken out. Texts
    that are equal are read once.
    """

    def __init__(self) -> None:
        self._room = MAX_CHARACTERS
        self._attributes = dict[str, _Declarations]()
        self._kept = dict[str, list[str]]()

    def clean_sheet(self, text: str, scope: str) -> tuple[str, bool]:
        """Return the rules of a style sheet for what is in the element with the id `scope`.

        The second value says whether that is all that can be seen of it.
        """
        if not self._has_room(text):
            return "", False
        try:
            return _clean_rules(_parse_rules(text), scope)
        except RecursionError:
            return "", False

    def clean_attribute(self, text: str) -> str:
        """Return the harmless part of a `style` attribute."""
        return self._read(text).text

    def list_given(self, text: str) -> list[str]:
        """Return the properties of an attribute that change how something looks."""
        return self._read(text).given

    def list_kept(self, text: str) -> list[str]:
        """Return the same of an attribute that `clean_attribute` has returned."""
        return self._kept.get(text, [])

    def _read(self, text: str) -> _Declarations:
        if (known := self._attributes.get(text)) is not None:
            return known
        if not self._has_room(text):
            return _UNREAD
        try:
            cleaned = _clean_declarations(_parse_declarations(text))
        except RecursionError:
            cleaned = _UNREAD
        self._attributes[text] = cleaned
        self._kept[cleaned.text] = cleaned.kept
        return cleaned

    def _has_room(self, text: str) -> bool:
        has_room = len(text) <= self._room
        self._room -= len(text) if has_room else 0
        return has_room


def _clean_declarations(nodes: Iterable[Any]) -> _Declarations:
    texts, given, kept = list[str](), list[str](), list[str]()
    for node in nodes:
        name, text = getattr(node, "lower_name", "?"), _clean_declaration(node)
        if text:
            texts.append(text)
        if not _UNSEEN_PROPERTY.fullmatch(name):
            given.append(name)
            kept += [name] if text else []
    return _Declarations("; ".join(texts), given, kept)


def _parse_rules(content: Any) -> list[Any]:
    parse: Any = tinycss2.parse_stylesheet if isinstance(content, str) else tinycss2.parse_rule_list
    return _without_comments(parse(content, skip_whitespace=True))


def _parse_declarations(content: Any) -> list[Any]:
    parse: Any = tinycss2.parse_declaration_list
    return _without_comments(parse(content, skip_whitespace=True))


def _without_comments(nodes: Iterable[Any]) -> list[Any]:
    # Not taken out by tinycss2, because comments in selectors and values separate tokens.
    return [node for node in nodes if node.type != "comment"]


class _UnknownTokenError(Exception):
    """CSS has a token that browsers could read in another way, such as a string without an end."""


def _serialize(nodes: Iterable[Any], literals: set[str]) -> str:
    """Return the text of nodes; "" if not all their tokens are known to be harmless."""
    write: Any = tinycss2.serialize
    try:
        return write(list(_known_tokens(nodes, literals))).strip()
    except _UnknownTokenError:
        return ""


def _known_tokens(nodes: Iterable[Any], literals: set[str]) -> Iterator[Any]:
    for node in nodes:
        if not _is_known(node, literals):
            raise _UnknownTokenError
        parts = _parts_of(node)
        parts[:] = list(_known_tokens(parts, literals))
        yield WhitespaceToken(0, 0, " ") if node.type in _SPACE else node


def _is_known(node: Any, literals: set[str]) -> bool:
    match node.type:
        case "literal":
            return node.value in literals
        case "ident":
            return _IDENT.fullmatch(node.value) is not None
        case "hash":
            return _HASH.fullmatch(node.value) is not None
        case "string":
            return _STRING.fullmatch(node.value) is not None
        case "dimension":
            return _UNIT.fullmatch(node.unit) is not None
        case "function":
            return _IDENT.fullmatch(node.name) is not None
        case kind:
            return kind in {*_SPACE, "number", "percentage", "() block", "[] block"}


def _clean_rules(rules: list[Any], scope: str) -> tuple[str, bool]:
    kept, is_complete = list[str](), True
    for rule in rules:
        text, is_whole = "", False
        if rule.type == "qualified-rule":
            text, is_whole = _clean_rule(rule, scope)
        elif rule.type == "at-rule" and rule.lower_at_keyword == "media" and rule.content:
            inner, is_whole = _clean_rules(_parse_rules(rule.content), scope)
            if inner and (query := _serialize(rule.prelude, _IN_QUERIES)):
                text = f"@media {query} {{\n{inner}\n}}"
        elif rule.type == "at-rule":
            is_whole = rule.lower_at_keyword in _UNSEEN_RULES
        is_complete = is_complete and is_whole
        if text:
            kept.append(text)
    return "\n".join(kept), is_complete


def _clean_rule(rule: Any, scope: str) -> tuple[str, bool]:
    selectors = [_limit_selector(selector, scope) for selector in _split_selectors(rule.prelude)]
    body = _clean_declarations(_parse_declarations(rule.content))
    is_whole = all(selectors) and body.kept == body.given
    if not body.text or not all(selectors):
        return "", is_whole
    return f"{', '.join(map(str, selectors))} {{ {body.text} }}", is_whole


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
    nodes = _strip(nodes)
    named = _count_page_tokens(nodes)
    text = _serialize(_rename_in_selector(nodes[named:]), _IN_SELECTORS)
    is_known = bool(text) or (named and len(nodes) == named)
    outline = "".join(map(_outline, nodes[named:]))
    between = "" if named and not outline.startswith(" ") else " "
    if not is_known or _SIBLING.match(f"x{between}{outline}"):
        return None
    return f"#{scope}{between if text else ''}{text}"


def _strip(nodes: list[Any]) -> list[Any]:
    tokens = [index for index, node in enumerate(nodes) if node.type not in _SPACE]
    return nodes[tokens[0] : tokens[-1] + 1] if tokens else []


def _count_page_tokens(nodes: list[Any]) -> int:
    """Return the number of tokens at the start of a selector that name the whole page."""
    if nodes and nodes[0].type == "ident" and nodes[0].lower_value in _WHOLE_PAGE:
        return 1
    is_root = len(nodes) > 1 and nodes[0] == ":" and nodes[1].type == "ident"
    return 2 if is_root and nodes[1].lower_value == "root" else 0


def _outline(node: Any) -> str:
    """Return the combinator that a token of a selector is, or a letter."""
    if node.type in _SPACE:
        return " "
    return node.value if node.type == "literal" else "x"


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
    value = _serialize(node.value, _IN_VALUES)
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
            return not (is_moving and node.representation.startswith("-"))
        case "literal":
            return not is_moving or node != "-"
        case "ident":
            return node.lower_value not in _ENDLESS
        case "function":
            return node.lower_name in _FUNCTIONS
        case kind:
            return kind in _PLAIN


def _parts_of(node: Any) -> list[Any]:
    if node.type == "function":
        return node.arguments
    return node.content if node.type in ("() block", "[] block") else []
