"""Lists and dictionaries that say when they have been changed, so that nobody has to look through them again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_CHANGING: dict[type, str] = {
    list: "__setitem__ __delitem__ __iadd__ __imul__ append clear extend insert pop remove reverse sort",
    dict: "__setitem__ __delitem__ __ior__ clear pop popitem setdefault update",
}


class NotedList(list[Any]):
    """A list that adds to `changes` whenever it is changed."""

    def __init__(self, content: list[Any], changes: set[str]) -> None:
        super().__init__(content)
        self.changes = changes


class NotedDict(dict[Any, Any]):
    """A dictionary that adds to `changes` whenever it is changed."""

    def __init__(self, content: dict[Any, Any], changes: set[str]) -> None:
        super().__init__(content)
        self.changes = changes


def _noting(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def changing(self: Any, *arguments: Any, **more: Any) -> Any:
        self.changes.add(name)
        return method(self, *arguments, **more)

    return changing


for _kind in (NotedList, NotedDict):
    for _name in _CHANGING[_kind.__base__ or object].split():
        setattr(_kind, _name, _noting(_name, getattr(_kind, _name)))
