"""Overrides of methods by subclasses of users: which are called, and which are refused."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from types import CodeType

_OURS = __name__.partition(".")[0]


def is_overridden(value: object, name: str) -> bool:
    """Return True if a class or object has the attribute `name` from elsewhere than Cellblock."""
    if not isinstance(value, type):
        return name in getattr(value, "__dict__", ()) or is_overridden(type(value), name)
    return any(name in vars(base) for base in _foreign_bases(value))


def uncalled_overrides(cls: type) -> dict[str, str]:
    """Return what a subclass of `cls` cannot override, with advice on what to do instead.

    Classes name it in their attribute `_uncalled_overrides`.
    """
    tables = (vars(base).get("_uncalled_overrides", {}) for base in cls.__mro__)
    return {name: advice for table in tables for name, advice in table.items()}


def refuse_uncalled_overrides(cls: type) -> None:
    """Raise `TypeError` if a new class overrides what it cannot.

    What another method of the class uses is a part of that method, and no such override.
    """
    uncalled = uncalled_overrides(cls)
    for name, advice in uncalled.items():
        if is_overridden(cls, name) and not _is_used(cls, name, uncalled):
            raise TypeError(
                f"{cls.__qualname__}.{name} would be ignored: Cellblock does not use it. {advice}"
            )


def _foreign_bases(cls: type) -> Iterator[type]:
    for base in cls.__mro__:
        if base is not object and base.__module__.partition(".")[0] != _OURS:
            yield base


def _is_used(cls: type, name: str, uncalled: Mapping[str, str]) -> bool:
    """Return True if a method of `cls`, apart from those that are never called, uses `name`."""
    methods = (
        inspect.unwrap(getattr(value, "__func__", value))
        for base in _foreign_bases(cls)
        for other, value in vars(base).items()
        if other not in uncalled
    )
    codes = (getattr(method, "__code__", None) for method in methods)
    return any(name in _names(code) for code in codes if code is not None)


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function, with those inside it, uses."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
