"""Overrides of methods by subclasses of users: which are called, and which are refused."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

_OURS = __name__.partition(".")[0]


def is_overridden(value: object, name: str) -> bool:
    """Return True if a class or object has the attribute `name` from elsewhere than Cellblock.

    It may also have been set on a class of Cellblock.
    """
    if not isinstance(value, type):
        return name in getattr(value, "__dict__", ()) or is_overridden(type(value), name)
    found = next((base for base in value.__mro__ if name in vars(base)), object)
    method = _function_of(vars(found).get(name))
    is_set_later = inspect.isfunction(method) and not _is_ours(method)
    return is_set_later or any(name in vars(base) for base in _foreign_bases(value))


def uncalled_overrides(cls: type) -> dict[str, str]:
    """Return what a subclass of `cls` cannot override, with advice on what to do instead.

    Classes name it in their attribute `_uncalled_overrides`.
    """
    tables = (vars(base).get("_uncalled_overrides", {}) for base in cls.__mro__)
    return {name: advice for table in tables for name, advice in table.items()}


def refuse_uncalled_overrides(cls: type) -> None:
    """Raise `TypeError` if a new class overrides what it cannot.

    What a method of the class that is called uses is a part of that method, and no such override.
    """
    uncalled = uncalled_overrides(cls)
    for name, advice in uncalled.items():
        if is_overridden(cls, name) and not _is_used(cls, name, uncalled):
            raise TypeError(
                f"{cls.__qualname__}.{name} would be ignored: Cellblock does not use it. {advice}"
            )


def _function_of(value: Any) -> Any:
    """Return the function in an attribute of a class, or the attribute."""
    return inspect.unwrap(getattr(value, "__func__", value))


def _is_ours(value: Any) -> bool:
    return str(value.__module__).partition(".")[0] == _OURS


def _foreign_bases(cls: type) -> Iterator[type]:
    for base in cls.__mro__:
        if base is not object and not _is_ours(base):
            yield base


def _is_used(cls: type, name: str, uncalled: Mapping[str, str]) -> bool:
    """Return True if `name` is used by a method that Cellblock calls, or by what that uses."""
    methods = {
        other: getattr(_function_of(value), "__code__", None)
        for base in reversed([*_foreign_bases(cls)])
        for other, value in vars(base).items()
    }
    ours = {each for base in cls.__mro__ if _is_ours(base) for each in vars(base)}
    pending = {each for each in methods if each in ours - uncalled.keys() and each[:2] != "__"}
    seen = set[str]()
    while pending:
        seen.add(each := pending.pop())
        code = methods[each]
        used = set[str]() if code is None else {*_names(code)}
        pending |= (used & methods.keys()) - seen
    return name in seen


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function, with those inside it, uses."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
