"""ProgramRun: a program in the work folder that is run as it is, without a block."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ...runtime.handshake import CellJob


@dataclass(frozen=True, kw_only=True)
class ProgramRun:
    """A program in the work folder. Names of files are relative to it.

    argv            its arguments, unless it is a `script` in Python
    code_file       the name and the text of a file to write before. No file has this name
    stdin           the name of the file of its standard input, which it does not see; "": none
    output_bytes    how many bytes of output to keep, instead of the limit `output_bytes`
    most_output     how many bytes of output end it; None: any number is read
    address_space   how many bytes it may map; a script: besides what Python has mapped
    is_isolated     a script of ours, after programs for whose start they can have left something
    """

    argv: Sequence[str] = ()
    script: str = ""
    code_file: tuple[str, str] | None = None
    stdin: str = ""
    output_bytes: int | None = None
    most_output: int | None = None
    address_space: int | None = None
    is_isolated: bool = False

    @property
    def language(self) -> str:
        """What spans call the language: "python" or the name of the program."""
        return "python" if self.script else os.path.basename(self.argv[0])

    def job(self, folder: str) -> CellJob:
        """Return how it is run. `folder` is the path of the work folder as blocks see it."""
        return CellJob(
            script=f"{folder}/{self.script}" if self.script else None,
            argv=tuple(self.argv),
            stdin=f"{folder}/{self.stdin}" if self.stdin else None,
            address_space=self.address_space,
        )
