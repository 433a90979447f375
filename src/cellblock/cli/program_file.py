"""ProgramFile: the programs in a file, one JSON object on each line."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TextIO

from ..batch.index import ProgramIndex
from ..batch.programs import Program
from ..batch.source_program import check_language


class InvalidProgramFile(Exception):
    """The file cannot be read, or a line of it is no program."""


class ProgramFile:
    """The programs in the file `path`; "-" is standard input. Empty lines are left out.

    form      "jsonl": one program on each line. "humaneval" or "mbpp": a published data set
    samples   the file of the answers to the problems of a data set. None: its own answers
    """

    def __init__(self, path: str, form: str = "jsonl", samples: str | None = None) -> None:
        self._path, self._form, self._samples = path, form, samples
        self._name = "standard input" if path == "-" else path

    def read_index(self) -> tuple[ProgramIndex, int] | None:
        """Check all lines, and return the programs and how many there are.

        Return None for what can be read only once. Raise `InvalidProgramFile`.
        """
        files = [self._path, *([] if self._samples is None else [self._samples])]
        if any(os.path.exists(file) and not os.path.isfile(file) for file in files):
            return None
        if self._path == "-":
            return None
        index, count = ProgramIndex(), 0
        try:
            for where, program in self._located():
                try:
                    index.add_program(program.id)
                except ValueError as error:
                    raise InvalidProgramFile(f"{where}: {error}") from error
                count += 1
            if not count:
                raise self.is_empty()
        except BaseException:
            index.close()
            raise
        return index, count

    def is_empty(self) -> InvalidProgramFile:
        """Return the error of a file without programs."""
        return InvalidProgramFile(f"{self._name} has no programs. Write one JSON object on a line.")

    def programs(self) -> Iterator[Program]:
        """Yield the programs. Raise `InvalidProgramFile`."""
        for _, program in self._located():
            yield program

    def _located(self) -> Iterator[tuple[str, Program]]:
        """Yield the programs, with the place where each one is."""
        return self._lines() if self._form == "jsonl" else self._data_set()

    def _data_set(self) -> Iterator[tuple[str, Program]]:
        from ..batch.datasets import human_eval, mbpp

        read = human_eval if self._form == "humaneval" else mbpp
        try:
            for program in read(self._path, self._samples):
                yield self._samples or self._path, program
        except ValueError as error:
            raise InvalidProgramFile(str(error)) from error
        except OSError as error:
            name = error.filename or self._path
            raise InvalidProgramFile(f"{name} cannot be read: {error.strerror or error}") from error

    def _lines(self) -> Iterator[tuple[str, Program]]:
        with self._open() as file:
            for number, line in enumerate(_lines(file, self._name), start=1):
                if line.strip():
                    where = f"line {number} of {self._name}"
                    try:
                        program = Program.from_json(line)
                        check_language(program)
                    except ValueError as error:
                        hint = _hint_at_form(line)
                        raise InvalidProgramFile(f"{where}: {error}{hint}") from error
                    yield where, program

    @contextmanager
    def _open(self) -> Generator[TextIO]:
        if self._path == "-":
            yield sys.stdin
            return
        opener = gzip.open if self._path.endswith(".gz") else open
        try:
            file = opener(self._path, "rt", encoding="utf-8-sig")
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
    except (OSError, EOFError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidProgramFile(f"{name} cannot be read: {reason}") from error


def _hint_at_form(line: str) -> str:
    """Return which --format reads a line that is no program; "" if none is known to."""
    for form, key in (("humaneval", "canonical_solution"), ("mbpp", "test_list")):
        if f'"{key}"' in line and '"task_id"' in line:
            return f" It is a problem of a data set: add --format {form}."
    return ""
