"""The files of conversations that are saved without --save, below the user's state folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from ....errors import WorkspaceError
from ...repl.history import history_file

_MAX_CHATS = 50  # of all folders


def new_chat(environment: Mapping[str, str], work_dir: str) -> Path:
    """Return the path of the file of a new conversation. Remove the oldest files.

    Raise `WorkspaceError` if none can be saved, or code in `work_dir` could change it.
    """
    try:
        folder = _folder(environment)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_usable = os.access(folder, os.W_OK)
        for old in _newest_first(folder, "*.md")[_MAX_CHATS - 1 :]:
            old.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        raise WorkspaceError(str(error)) from error
    if not is_usable:
        raise WorkspaceError(f"{folder} cannot be written")
    if folder.resolve().is_relative_to(Path(work_dir).resolve()):
        raise WorkspaceError(f"{folder} is in the work folder, where code could change it")
    start = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    names = (f"{start}-{number}{_ending()}" for number in count(1))
    return next(folder / name for name in names if not (folder / name).exists())


def latest_chat(environment: Mapping[str, str]) -> Path | None:
    """Return the file of the latest conversation of the current folder, None if there is none."""
    try:
        path = next(iter(_newest_first(_folder(environment), f"*{_ending()}")), None)
        return Path(os.readlink(path)) if path is not None and path.is_symlink() else path
    except (OSError, RuntimeError):
        return None


def remember_chat(environment: Mapping[str, str], path: Path) -> None:
    """Let `latest_chat` find the conversation in a file of the user's, by a link to it.

    Raise `WorkspaceError` if that fails.
    """
    try:
        target, folder = path.absolute(), _folder(environment)
        if target.parent.resolve() == folder.resolve():
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = hashlib.sha256(os.fsencode(target)).hexdigest()[:16]
        link = folder / f"link-{name}{_ending()}"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    except (OSError, RuntimeError) as error:
        raise WorkspaceError(str(error)) from error


def _folder(environment: Mapping[str, str]) -> Path:
    return history_file(environment).with_name("chats")


def _ending() -> str:
    """Return the end of the names of the current folder's files."""
    return f"-{hashlib.sha256(os.fsencode(os.getcwd())).hexdigest()[:16]}.md"


def _newest_first(folder: Path, pattern: str) -> list[Path]:
    times: dict[Path, float] = {}
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):  # of a link
            times[path] = path.stat().st_mtime
    return sorted(times, key=times.__getitem__, reverse=True)
