"""Where the lines typed at the prompt are kept: with the user's other state, out of reach of what they run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import WorkspaceError


def history_file(environment: Mapping[str, str]) -> Path:
    """Give the file's path: below XDG_STATE_HOME, or where that is by default. Raises `RuntimeError` without a home."""
    given = environment.get("XDG_STATE_HOME", "")
    state = Path(given) if os.path.isabs(given) else Path.home() / ".local" / "state"
    return state / "cellblock" / "history"


def open_history(path: Path, work_dir: str) -> None:
    """Make the file, for its owner alone, when it is not there. Raises `WorkspaceError` when it cannot be kept."""
    if path.resolve().is_relative_to(Path(work_dir).resolve()):
        raise WorkspaceError(f"{path} is in the work folder, where code could change it")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "a"):
            pass
    except OSError as error:
        raise WorkspaceError(f"{path}: {error.strerror}") from error
