"""Peer: one end of the two pipes between the tests and the program that they test."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Callable, Mapping
from typing import Any, cast

from .errors import ErrorClasses, encode_error
from .values import InvalidValue, decode, encode

_MAX_MESSAGE = 1 << 26  # bytes
_HEADER_BYTES = 4
Message = list[Any]
Named = Mapping[str, Any]  # arguments by their names
LINE = "line_of_program"  # the attribute of an exception that the other process has raised


class Gone(Exception):
    """The other process has ended, or closed its end."""


class Peer:
    """Asks the other process for something, and answers what it asks meanwhile.

    perform    does what the other process asks for, and returns the answer
    watched    a pidfd of the other process; -1 if its end is noticed only by its pipes
    """

    def __init__(self, reader: int, writer: int, perform: Callable[[Message], Message]) -> None:
        self._reader, self._writer, self._perform = reader, writer, perform
        self.watched = -1
        self.errors = ErrorClasses()
        # What the other process can refer to by number.
        self._lent: list[Any] = []
        self._numbers: dict[int, int] = {}

    def ask(self, *message: object) -> Any:
        """Send a request, and return the message that answers it. Raise what the answer raises.

        Raise `Gone` or `InvalidValue` if there is none.
        """
        self.send(["ask", *message])
        while True:
            match self.receive():
                case ["ask", *request]:
                    self.answer(request)
                case ["return", *result]:
                    return result
                case ["raise", line, *error]:
                    raised = self.errors.decode_error(error, self.resolve)
                    raised.__dict__[LINE] = line if isinstance(line, int) else 0
                    raise raised
                case _:
                    raise InvalidValue("invalid message")

    def answer(self, request: Message) -> None:
        """Perform a request and send what it returns or raises."""
        try:
            answer = ["return", *self._perform(request)]
        except (Gone, InvalidValue):
            raise
        except BaseException as error:  # also SystemExit: the other side decides what it means
            answer = ["raise", self.line_of(error), *encode_error(error, self.refer)]
        self.send(answer)

    def line_of(self, error: BaseException) -> int:
        """Return the line in which `error` was raised; 0 if it is unknown."""
        del error
        return 0

    def encode(self, value: object) -> Any:
        """Return `value` as JSON."""
        return encode(value, self.refer)

    def decode(self, value: object) -> Any:
        """Return the value that is encoded as `value`. Raise `InvalidValue`."""
        return decode(value, self.resolve)

    def refer(self, value: object) -> Message:
        """Return the message that stands for a value that is not plain data."""
        return self.lend(value)

    def lend(self, value: object) -> Message:
        """Let the other process refer to `value`, and return the message that stands for it."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._lent)
            self._lent.append(value)  # which keeps its id in use
        return ["object", number, type(value).__name__[:100]]

    def resolve(self, tag: str, parts: Message) -> object:
        """Return what a message of `refer` stands for. Raise `InvalidValue`."""
        match tag, parts:
            case "lent", [int(number)] if 0 <= number < len(self._lent):
                return self._lent[number]
            case "object", [int(number), str(kind)]:
                return self.borrow(number, kind)
            case _:
                raise InvalidValue(f"invalid value {tag[:20]}")

    def borrow(self, number: int, kind: str) -> object:
        """Return what stands for the object `number` of the other process. `kind`: its class."""
        raise InvalidValue(f"an object of the class {kind}, number {number}")

    # frames: the length, then JSON in ASCII

    def send(self, message: Message) -> None:
        """Send a message. Raise `Gone`."""
        data = json.dumps(message).encode("ascii")
        data = len(data).to_bytes(_HEADER_BYTES, "big") + data
        try:
            while data:
                data = data[os.write(self._writer, data) :]
        except BrokenPipeError as error:
            raise Gone from error

    def receive(self) -> Message:
        """Return the next message. Raise `Gone` or `InvalidValue`."""
        size = int.from_bytes(self._read(_HEADER_BYTES), "big")
        if size > _MAX_MESSAGE:
            raise InvalidValue(f"a message of {size} bytes, of which {_MAX_MESSAGE} are allowed")
        try:
            message = json.loads(self._read(size))
        except (ValueError, RecursionError) as error:
            raise InvalidValue("a message that is not JSON") from error
        if not isinstance(message, list):
            raise InvalidValue("invalid message")
        return cast("Message", message)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            if self.watched >= 0:
                ready, _, _ = select.select([self._reader, self.watched], [], [])
                if self._reader not in ready:  # what it has forked can hold the pipe open
                    raise Gone
            piece = os.read(self._reader, min(size - len(data), 1 << 16))
            if not piece:
                raise Gone
            data += piece
        return bytes(data)
