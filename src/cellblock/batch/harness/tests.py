"""The tests, in a process that the program cannot look into. They see the program's objects as
plain data, or as a `ProgramObject`."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType
from typing import Any, NoReturn, cast

from .peer import Gone, Message, Named, Peer
from .values import InvalidValue

FILE = "tests.py"
_ALIASES = {"np": "numpy", "pd": "pandas"}
_LIBRARIES = sys.stdlib_module_names | {"numpy", "pandas"}


class CannotJudge(Exception):
    """The tests do something that cannot be done across two processes."""


class TestsPeer(Peer):
    """Asks the program. `fault` is what went wrong first, even if the tests have caught it."""

    def __init__(self, reader: int, writer: int) -> None:
        super().__init__(reader, writer, self._obey)
        self.fault: Exception | None = None
        self.is_used = False
        self.last_result: list[object] = []
        self._objects: dict[int, ProgramObject] = {}

    def ask(self, *message: object) -> Any:
        """See `Peer`."""
        self.is_used = True
        try:
            return super().ask(*message)
        except (Gone, InvalidValue) as error:
            self.fault = self.fault or error
            raise

    def refuse(self, text: str) -> NoReturn:
        """Raise `CannotJudge`."""
        error = CannotJudge(text)
        self.fault = self.fault or error
        raise error

    def named(self, name: str) -> Any:
        """Return the object of the program with this name. Raise `NameError`."""
        value, names = self._answer("name", name)
        if isinstance(names, list) and names:
            return self.errors.find_class(cast("list[object]", names))
        return value

    def use(self, number: int, what: str, *arguments: object) -> list[Any]:
        """Do something with an object of the program. Return the parts of the answer."""
        return self._answer(what, number, *arguments)

    def _answer(self, *message: object) -> list[Any]:
        return [self._decode(part) for part in self.ask(*message)]

    def _decode(self, value: object) -> Any:
        try:
            return self.decode(value)
        except InvalidValue as error:
            self.fault = self.fault or error
            raise

    def call(self, number: int, given: tuple[Any, ...], named: Named) -> Any:
        """Call a function of the program. What it changes in its arguments is changed here."""
        encoded = {key: self.encode(value) for key, value in named.items()}
        values = [self.encode(value) for value in given]
        match self.ask("call", number, values, encoded):
            case [result, list()] as answer:
                arguments = {**dict(enumerate(given)), **named}
                for change in cast("Message", answer[1]):
                    self._change(arguments, change)
                self.last_result = [self._decode(result)]
                return self.last_result[0]
            case _:
                raise InvalidValue("invalid answer")

    async def _await(self, number: int) -> object:
        """Run a coroutine of the program to its end, in an event loop of the program's process."""
        return _only(self.use(number, "await"))

    def _change(self, arguments: dict[Any, Any], change: Any) -> None:
        match change:
            case [int() | str() as key, value] if key in arguments:
                old, new = arguments[key], self._decode(value)
            case _:
                raise InvalidValue("invalid change")
        for kind in (list, bytearray, dict, set):
            if isinstance(old, kind) and isinstance(new, kind):
                _replace(old, new)
                return
        raise InvalidValue("invalid change")

    def _obey(self, request: Message) -> Message:
        """The program may call the functions that it was given, and nothing else."""
        match request:
            case ["call", int(number), list(), dict()]:
                function: Any = self.resolve("lent", [number])
                given, named = cast("tuple[Message, Named]", request[2:])
                values, options = map(self.decode, given), named.items()
                return [self.encode(function(*values, **{k: self.decode(v) for k, v in options}))]
            case _:
                raise InvalidValue("invalid request")

    def refer(self, value: object) -> Message:
        """See `Peer`. Functions can be called by the program; nothing else of them is reachable."""
        if isinstance(value, ProgramObject):
            return ["lent", value.number]
        name = getattr(value, "__name__", "")
        if isinstance(value, type | BuiltinFunctionType) and (
            getattr(builtins, name, None) is value
        ):
            return ["builtin", name]
        if callable(value) and not isinstance(value, type):
            return self.lend(value)
        self.refuse(
            f"The tests pass an object of the class {type(value).__name__} to the program. Only "
            "plain data, functions and objects of the program itself can be passed."
        )

    def borrow(self, number: int, kind: str) -> object:
        """See `Peer`."""
        if kind == "coroutine":
            return self._await(number)
        if number not in self._objects:
            self._objects[number] = ProgramObject(self, number, kind)
        return self._objects[number]


# The special attributes that tests ask for by name. Others belong to protocols by which libraries
# written in C take an object for an array, a pointer or a number, such as `__array_interface__`.
_SPECIAL_NAMES = frozenset(
    f"__{name}__"
    for name in (
        "name qualname module doc dict annotations defaults kwdefaults version all bases mro "
        "members add sub mul truediv floordiv mod pow neg abs contains enter exit next lt le gt ge"
    ).split()
)


# Our own, and what pandas takes for the kind of a table.
_NEVER = frozenset(("_kind", "_peer", "number", "_typ"))


class ProgramObject:
    """An object of the program that is not plain data, such as a function.

    It does not decide what it is equal to, and is no array, buffer or number.
    """

    __slots__ = ("_kind", "_peer", "number")
    _kind: str
    _peer: TestsPeer
    number: int

    def __init__(self, peer: TestsPeer, number: int, kind: str) -> None:
        for name, value in (("_peer", peer), ("number", number), ("_kind", kind)):
            object.__setattr__(self, name, value)

    def _use(self, what: str, *arguments: object) -> list[Any]:
        return self._peer.use(self.number, what, *arguments)

    def __call__(self, *given: object, **named: object) -> Any:
        return self._peer.call(self.number, given, named)

    def __getattr__(self, name: str) -> Any:
        if name in _NEVER or (name[:1] == name[-1:] == "_" and name not in _SPECIAL_NAMES):
            raise AttributeError(f"Tests cannot read {name!r} of an object of the program.")
        return _only(self._use("get", name))

    def __setattr__(self, name: str, value: object) -> None:
        self._use("set", name, self._peer.encode(value))

    def __getitem__(self, key: object) -> Any:
        return _only(self._use("item", self._peer.encode(key)))

    def __len__(self) -> int:
        return int(_only(self._use("len")))

    def __bool__(self) -> bool:
        return _only(self._use("true")) is True

    def __iter__(self) -> Iterator[Any]:
        iterator = _only(self._use("iterate"))
        while isinstance(iterator, ProgramObject) and (part := iterator._use("next")):
            yield _only(part)

    def __eq__(self, other: object) -> bool:
        if other is None or isinstance(other, ProgramObject):
            return self is other
        self._peer.refuse(
            f"The tests compare an object of the class {self._kind}, which is not plain data. "
            "Compare its attributes, or let the program return plain data."
        )

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        self._peer.refuse(f"The tests copy an object of the class {self._kind}.")

    def __str__(self) -> str:
        text = _only(self._use("str"))
        return text if isinstance(text, str) else repr(self)

    def __repr__(self) -> str:
        return f"<object of the class {self._kind}>"


def _replace(old: Any, new: Any) -> None:
    if hasattr(old, "update"):
        old.clear()
        old.update(new)
    else:
        old[:] = new


def _only(parts: list[Any]) -> Any:
    if len(parts) != 1:
        raise InvalidValue("invalid answer")
    return parts[0]


class Names(dict[str, object]):
    """The names of the tests. Others are of a library, or else of the program.

    Builtin names are never looked up in the program, and neither are those of libraries: it could
    define them so that every comparison succeeds.
    """

    def __init__(self, peer: TestsPeer) -> None:
        super().__init__(__name__="tests", __file__=FILE)
        self._peer = peer

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        if (module := _ALIASES.get(name, name)) in _LIBRARIES:
            try:
                return self.setdefault(name, importlib.import_module(module))
            except ImportError:
                pass
        try:
            return self.setdefault(name, self._peer.named(name))
        except NameError:
            raise KeyError(name) from None
