"""The history file of the prompt. Code in a session cannot reach it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ...errors import WorkspaceError


def history_file(environment: Mapping[str, str]) -> Path:
    """Return the path of the history file, below XDG_STATE_HOME or ~/.local/state.

    Raise `RuntimeError` if there is no home directory.
    """
    state_home = environment.get("XDG_STATE_HOME", "")
    state = Path(state_home) if os.path.isabs(state_home) else Path.home() / ".local" / "state"
    return state / "cellblock" / "history"


def open_history(path: Path, work_dir: str) -> None:
    """Create the file, readable only by its owner, if it does not exist.

    Raise `WorkspaceError` if it cannot be used.
    """
    if path.resolve().is_relative_to(Path(work_dir).resolve()):
        raise WorkspaceError(f"{path} is in the work folder, where code could change it")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "a"):
            pass
    except OSError as error:
        raise WorkspaceError(f"{path}: {error.strerror}") from error
