"""The program under test, in a process of its own, which has never seen the tests."""

from __future__ import annotations

import builtins
import contextlib
import math
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn, cast

from .errors import class_names
from .peer import Gone, Message, Named, Peer
from .values import InvalidValue

NAME, FILE = "solution", "solution.py"
_MUTABLE = (list, dict, set, bytearray)
_FIRST_FREE = 5  # descriptors: standard input and output, then the two pipes


def run_program(reader: int, writer: int, code: str, cpu_seconds: float | None) -> NoReturn:
    """Answer what the tests ask, until they end this process. The first request runs the code."""
    os.setsid()
    high = max(reader, writer, _FIRST_FREE) + 1
    for source, target in ((reader, high), (writer, high + 1)):
        os.dup2(source, target, inheritable=False)
    for source, target in ((high, 3), (high + 1, 4)):
        os.dup2(source, target, inheritable=False)
    os.dup2(2, 1)
    os.closerange(_FIRST_FREE, 1 << 16)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if cpu_seconds is not None:
        _limit_cpu(cpu_seconds)
    peer = ProgramPeer(3, 4, code)
    with contextlib.suppress(Gone):
        while True:
            match peer.receive():
                case ["ask", *request]:
                    peer.answer(request)
                case _:
                    break
    os._exit(0)


def _limit_cpu(seconds: float) -> None:
    # In whole seconds, and for each process: the caller compares the sum exactly.
    soft, (_, hard) = math.ceil(seconds), resource.getrlimit(resource.RLIMIT_CPU)
    limits = (soft, soft + 1)
    if hard != resource.RLIM_INFINITY:
        limits = (min(soft, hard), min(soft + 1, hard))
    resource.setrlimit(resource.RLIMIT_CPU, limits)


class ProgramPeer(Peer):
    """Gives the tests the names and objects of the program."""

    def __init__(self, reader: int, writer: int, code: str) -> None:
        super().__init__(reader, writer, self._obey)
        self._code = code
        self._module = ModuleType(NAME)
        self._module.__file__ = FILE
        sys.modules[NAME] = self._module

    def _obey(self, request: Message) -> Message:
        match request:
            case ["run"]:
                self._run()
                return []
            case ["name", str(name)]:
                value = self._named(name)
                names = class_names(value) if _is_exception_class(value) else []
                return [self.encode(value), ["list", *names]]
            case [str(what), int(number), *arguments]:
                return self._use(what, self.resolve("lent", [number]), arguments)
            case _:
                raise InvalidValue("invalid request")

    def _run(self) -> None:
        sys.argv = [FILE]
        try:
            exec(compile(self._code, FILE, "exec", dont_inherit=True), self._module.__dict__)
        except BaseException as error:
            _print_traceback(error)
            raise

    def _named(self, name: str) -> Any:
        try:
            return self._module.__dict__[name]
        except KeyError:
            raise NameError(f"name {name!r} is not defined") from None

    def _use(self, what: str, value: Any, arguments: Message) -> Message:
        match what, arguments:
            case "call", [list(), dict()]:
                return self._call(value, *cast("tuple[Message, Named]", arguments))
            case "get", [str(name)]:
                return [self.encode(getattr(value, name))]
            case "set", [str(name), new]:
                setattr(value, name, self.decode(new))
                return []
            case "item", [key]:
                return [self.encode(value[self.decode(key)])]
            case (("len" | "true" | "str" | "await"), []):
                return [self.encode(_QUESTIONS[what](value))]
            case "iterate", []:
                return [self.lend(iter(value))]
            case "next", []:
                for item in value:
                    return [self.encode(item)]
                return []
            case _:
                raise InvalidValue("invalid request")

    def _call(self, function: Any, given: Message, named: Named) -> Message:
        """Return the result, and the encoded arguments that the function has changed."""
        before = {**dict(enumerate(given)), **named}
        arguments = {key: self.decode(value) for key, value in before.items()}
        result = function(
            *[arguments[at] for at in range(len(given))],
            **{key: arguments[key] for key in named},
        )
        changes = [
            [key, after]
            for key, value in arguments.items()
            if type(value) in _MUTABLE and (after := self.encode(value)) != before[key]
        ]
        return [self.encode(result), changes]

    def send(self, message: Message) -> None:
        """Send a message after all that the program has printed."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        super().send(message)

    def line_of(self, error: BaseException) -> int:
        """See `Peer`."""
        line, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == FILE:
                line = trace.tb_lineno
            trace = trace.tb_next
        if not line and isinstance(error, SyntaxError) and error.filename == FILE:
            return error.lineno or 0
        return line

    def resolve(self, tag: str, parts: Message) -> object:
        """See `Peer`. The tests can pass builtin functions and classes."""
        match tag, parts:
            case "builtin", [str(name)]:
                return getattr(builtins, name)
            case _:
                return super().resolve(tag, parts)

    def borrow(self, number: int, kind: str) -> object:
        """Return a function that calls one of the tests."""
        del kind
        return TestFunction(self, number)

    def refer(self, value: object) -> Message:
        """See `Peer`."""
        return ["lent", value.number] if type(value) is TestFunction else super().refer(value)


class TestFunction:
    """A function of the tests, which the program can call."""

    def __init__(self, peer: Peer, number: int) -> None:
        self._peer, self.number = peer, number

    def __call__(self, *given: object, **named: object) -> Any:
        encoded = {key: self._peer.encode(value) for key, value in named.items()}
        values = [self._peer.encode(value) for value in given]
        (result,) = self._peer.ask("call", self.number, values, encoded)
        return self._peer.decode(result)


def _is_exception_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _await(value: Any) -> Any:
    import asyncio  # only if the program is asynchronous

    return asyncio.run(value)


_QUESTIONS: Mapping[str, Callable[[Any], object]] = {
    "len": len,
    "true": bool,
    "str": str,
    "await": _await,
}


def _print_traceback(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != FILE:
        trace = trace.tb_next
    with contextlib.suppress(Exception):
        sys.__excepthook__(type(error), error.with_traceback(trace), trace)
