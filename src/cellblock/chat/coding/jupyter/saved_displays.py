"""Turn the result of a kernel into AutoGen 0.2's, whose output says where pictures are saved."""

from __future__ import annotations

import os
from pathlib import Path

from ....results import SessionCodeResult
from ..base import IPythonCodeResult, result_text


def to_ipython_result(result: SessionCodeResult) -> IPythonCodeResult:
    """Return `result` with the pictures and pages it displayed in its output."""
    return IPythonCodeResult(
        result.exit_code,
        result_text(result),
        [str(path) for path in result.output_files],
        stdout=result.stdout,
        stderr=result.stderr,
        outcome=result.outcome,
        limit=result.limit,
        usage=result.usage,
        files=result.files,
        displays=result.displays,
        truncated=result.truncated,
        blocks=result.blocks,
    )


def existing_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder for pictures and pages. Raise `ValueError` if it is missing."""
    path = Path(folder).absolute()
    if not path.is_dir():
        raise ValueError(f"Output directory {folder} does not exist.")
    return path
