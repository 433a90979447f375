"""ProgramFile: the programs in a file, one JSON object on each line."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TextIO

from ..batch.index import ProgramIndex
from ..batch.programs import Program


class InvalidProgramFile(Exception):
    """The file cannot be read, or a line of it is no program."""


class ProgramFile:
    """The programs in the file `path`; "-" is standard input. Empty lines are left out."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._name = "standard input" if path == "-" else path

    def count(self) -> int | None:
        """Check all lines, and return how many programs there are.

        Return None for what can be read only once. Raise `InvalidProgramFile`.
        """
        if self._path == "-" or (os.path.exists(self._path) and not os.path.isfile(self._path)):
            return None
        index, count = ProgramIndex(), 0
        try:
            for number, program in self._numbered():
                try:
                    index.add_program(program.id)
                except ValueError as error:
                    raise InvalidProgramFile(f"line {number} of {self._name}: {error}") from error
                count += 1
        finally:
            index.close()
        return count

    def programs(self) -> Iterator[Program]:
        """Yield the programs. Raise `InvalidProgramFile`."""
        for _, program in self._numbered():
            yield program

    def _numbered(self) -> Iterator[tuple[int, Program]]:
        with self._open() as file:
            for number, line in enumerate(_lines(file, self._name), start=1):
                if line.strip():
                    try:
                        yield number, Program.from_json(line)
                    except ValueError as error:
                        message = f"line {number} of {self._name}: {error}"
                        raise InvalidProgramFile(message) from error

    @contextmanager
    def _open(self) -> Generator[TextIO]:
        if self._path == "-":
            yield sys.stdin
            return
        try:
            file = open(self._path, encoding="utf-8-sig")
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            reason = getattr(error, "strerror", None) or error
            raise InvalidProgramFile(f"{self._path} cannot be read: {reason}") from error
        with file:
            yield file


def _lines(file: TextIO, name: str) -> Iterator[str]:
    try:
        yield from file
    except UnicodeDecodeError as error:
        raise InvalidProgramFile(f"{name} is not UTF-8: {error}") from error
    except OSError as error:
        raise InvalidProgramFile(f"{name} cannot be read: {error.strerror}") from error
