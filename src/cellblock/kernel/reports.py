"""Read what `session_hooks` reports. Code in the session can forge it, so everything is checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..events import Display
from .session_hooks import MAX_CELL_BYTES, REPORT_TYPE

# In JSON, where a backslash before it would be an escaped backslash.
_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\u001b(?!\[[0-9;]{0,30}m)")


@dataclass(frozen=True)
class SessionReport:
    """One report: a kind of `_FIELDS`, and its content with exactly these fields."""

    kind: str
    content: dict[str, Any]


class ReportReader:
    """Put the pieces of reports together. Does no I/O."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def read(self, display: Display) -> SessionReport | None:
        """Return the report that `display` completes. Return None for a piece or a forgery.

        A display that is not a report has the kind `display_data`.
        """
        if REPORT_TYPE not in display.data:
            content = {"data": display.data, "metadata": display.metadata}
            return _checked("display_data", {**content, "transient": dict[str, Any]()})
        piece = as_mapping(display.data[REPORT_TYPE])
        text = piece.get("text")
        if not isinstance(text, str) or sum(map(len, self._pieces)) > MAX_CELL_BYTES:
            self._pieces.clear()
            return None
        self._pieces.append(text)
        if piece.get("last") is not True:
            return None
        whole = "".join(self._pieces)
        self._pieces.clear()
        return _parse(whole)


def _parse(text: str) -> SessionReport | None:
    try:
        kind, content = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    return _checked(kind, content) if isinstance(kind, str) else None


def _checked(kind: str, content: object) -> SessionReport | None:
    fields, given = _FIELDS.get(kind), as_mapping(content)
    if fields is None or not all(check(given.get(name)) for name, check in fields.items()):
        return None
    content = _sendable({name: given[name] for name in fields})
    return None if content is None else SessionReport(kind, content)


def _sendable(content: dict[str, Any]) -> dict[str, Any] | None:
    """Return `content` with U+FFFD or text instead of what clients cannot take.

    That is what JSON and UTF-8 lack (NaN, infinity, lone surrogates), and the escape character,
    except before a colour: a terminal would obey it. Return None if it is nested too deeply.
    """
    try:
        text = json.dumps(content, ensure_ascii=False)
        safe = _ESCAPE.sub("\\1\ufffd", text).encode(errors="replace").decode()
        return json.loads(safe, parse_constant=str)
    except RecursionError:
        return None


def as_mapping(value: object) -> dict[str, Any]:
    """Return a value from JSON if it is an object, and else an empty one."""
    return dict(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else {}


def as_error(value: object) -> dict[str, Any]:
    """Return a value from JSON as the content of an error; what it lacks is empty."""
    given = as_mapping(value)
    known = {name: given[name] for name, check in _ERROR.items() if check(given.get(name))}
    return {"status": "error", "ename": "", "evalue": "", "traceback": [], **known}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _list_of(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(check, cast("list[object]", value)))


_BUNDLE = {"data": _is_mapping, "metadata": _is_mapping}
_ERROR = {"ename": _is_text, "evalue": _is_text, "traceback": _list_of(_is_text)}
_FIELDS: Mapping[str, Mapping[str, Callable[[object], bool]]] = {
    "display_data": {**_BUNDLE, "transient": _is_mapping},
    "update_display_data": {**_BUNDLE, "transient": _is_mapping},
    "execute_result": _BUNDLE,
    "clear_output": {"wait": _is_flag},
    "error": _ERROR,
    "failure": _ERROR,  # an error that the client has seen on stderr
    "payload": {"payload": _list_of(_is_mapping)},
    "reply": {"data": _is_mapping},
}
