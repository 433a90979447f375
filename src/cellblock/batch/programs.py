"""Program: what is to be judged, and with which limits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from ..limits import GIB, MIB, MIN_MEMORY_BYTES
from .json_fields import check_keys, field_of, parse_object
from .tests import Tests, tests_from_dict, tests_to_dict


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program of a batch.

    id         its name in the batch, which no other program has
    code       its source text
    language   a language that blocks can have
    stdin      what it reads from standard input. Tests with cases give their own
    files      files to write into its work folder first, by their relative names
    tests      what it has to do. None: end with exit code 0
    """

    id: str
    code: str
    language: str = "python"
    stdin: str = ""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    tests: Tests | None = None

    @classmethod
    def from_json(cls, line: str) -> Program:
        """Return the program that a line of JSON describes. Raise `ValueError`."""
        values = parse_object(line, "The line")
        check_keys(values, [each.name for each in fields(cls)], "The program")
        what = f"The program {values.get('id')!r:.60}"
        for name in ("id", "code"):
            if not isinstance(values.get(name), str):
                raise ValueError(f'{what} needs "{name}", a string.')
        files = field_of(values, "files", dict, what, {})
        for name in files:
            field_of(files, name, str, f"{what}, files", "")
        tests = values.get("tests")
        return cls(
            id=values["id"],
            code=values["code"],
            language=field_of(values, "language", str, what, "python"),
            stdin=field_of(values, "stdin", str, what, ""),
            files=files,
            tests=None if tests is None else tests_from_dict(tests),
        )

    def to_json(self) -> str:
        """Return one line of JSON without its end."""
        return json.dumps(self._to_dict())

    def _to_dict(self) -> Mapping[str, object]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        tests = None if self.tests is None else tests_to_dict(self.tests)
        return {**values, "files": dict(self.files), "tests": tests}

    def digest(self, limits: JudgeLimits) -> str:
        """Return a hash of everything that the verdict depends on."""
        text = json.dumps([self._to_dict(), asdict(limits)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True)
class JudgeLimits:
    """How much one run of a program may use. None means no limit.

    cpu_seconds     CPU time of all its processes: the limit that judges. It does not depend on
                    what else the machine does
    wall_seconds    time from its start. It only ends programs that wait without using the CPU, and
                    is generous, so that a busy machine does not change verdicts
    memory_bytes    memory of all its processes
    output_bytes    output to keep. A program that prints 16 times as much, and 1 MiB or more, is
                    ended
    """

    cpu_seconds: float | None = 10
    wall_seconds: float | None = 60
    memory_bytes: int | None = GIB
    output_bytes: int | None = MIB

    def __post_init__(self) -> None:
        minimums = {"memory_bytes": MIN_MEMORY_BYTES, "wall_seconds": 1}
        for each in fields(self):
            value, minimum = getattr(self, each.name), minimums.get(each.name, 0)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(
                    f"JudgeLimits.{each.name} must be a number above 0 or None, not {value!r}."
                )
            if value < minimum:
                raise ValueError(
                    f"JudgeLimits.{each.name} must be at least {minimum}, not {value!r}."
                )
