"""Exceptions as JSON: the names of their classes, and their arguments if these are plain data."""

from __future__ import annotations

import builtins
import sys
from typing import Any, cast

from .values import InvalidValue, Refer, Resolve, decode, encode

TEXT = "text_of_program"  # the attribute with the text that the program saw
_MAX_TEXT = 2000
_MAX_CLASSES = 20
# They would end an iteration of the tests early, so that the rest is never compared.
_ENDS_ITERATION = (StopIteration, StopAsyncIteration, GeneratorExit)
# For those who run tests their exceptions are no errors, but a skipped test or an end.
_OF_TEST_RUNNERS = {"unittest", "doctest", "bdb"}
_CANCELLED = "CancelledError"  # a task of asyncio that raises one has not failed


class ProgramEndedIteration(RuntimeError):
    """The program raised an exception that would have ended an iteration of the tests."""


def encode_error(error: BaseException, refer: Refer) -> list[Any]:
    """Return `error` as JSON."""
    try:
        arguments = encode(error.args, refer)
    except Exception:  # a property or a value of the program's
        arguments = ["tuple"]
    try:
        text = str(error)[:_MAX_TEXT]
    except Exception as second:
        text = f"<its text raised {type(second).__name__}>"
    return [class_names(type(error)), text, arguments]


def class_names(kind: type) -> list[str]:
    """Return the names of an exception class and of its bases, the most special first."""
    return [
        one.__qualname__ if one.__module__ == "builtins" else f"{one.__module__}.{one.__qualname__}"
        for one in kind.__mro__[:_MAX_CLASSES]
    ]


class ErrorClasses:
    """The classes of exceptions that the other side raises: builtin ones, or made for it."""

    def __init__(self) -> None:
        self._made: dict[str, type[BaseException]] = {}

    def decode_error(self, value: list[Any], resolve: Resolve) -> BaseException:
        """Return the exception that `encode_error` encoded. Raise `InvalidValue` if it is none."""
        match value:
            case [[str(), *_] as names, str(text), arguments]:
                found = self.find_class(cast("list[object]", names))
            case _:
                raise InvalidValue("invalid exception")
        if issubclass(found, _ENDS_ITERATION):
            return ProgramEndedIteration(f"{found.__name__}: {text}")
        arguments = decode(arguments, resolve)
        if not isinstance(arguments, tuple):
            raise InvalidValue("invalid arguments of an exception")
        try:
            error = found.__new__(found, *arguments)
            error.args = arguments
            error.__dict__[TEXT] = text
            return error
        except Exception as failure:
            raise InvalidValue(f"invalid exception {found.__name__}") from failure

    def find_class(self, names: list[object]) -> type[BaseException]:
        """Return the class with these `names` of itself and its bases, the most special first."""
        name, *others = names
        if not isinstance(name, str):
            raise InvalidValue("invalid name of an exception")
        if (known := _known_class(name)) is not None:
            return known
        if not others:
            return RuntimeError
        if name not in self._made:
            last = name.rpartition(".")[2][:200].replace("\0", "?")
            last = last.encode(errors="replace").decode()  # surrogates
            self._made[name] = type(last, (self.find_class(others),), {"__module__": "program"})
        return self._made[name]


def _known_class(name: str) -> type[BaseException] | None:
    """Return a class of the standard library that is loaded already, and is an error for all."""
    module, _, last = name.rpartition(".")
    if module and module.partition(".")[0] not in sys.stdlib_module_names:
        return None
    found = getattr(sys.modules.get(module) if module else builtins, last, None)
    if not isinstance(found, type) or not issubclass(found, BaseException) or _ends_tests(found):
        return None
    return found


def _ends_tests(kind: type[BaseException]) -> bool:
    """Return True for a class that others know under any name, but not as that of an error."""
    return kind.__module__.partition(".")[0] in _OF_TEST_RUNNERS or kind.__name__ == _CANCELLED
