"""Locks on the files of conversations, so that two terminals do not write the same one."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ....errors import WorkspaceError
from ...repl.history import history_file


class ChatLocks:
    """Locks that this process holds until it ends.

    Each is one byte of a file that all conversations of the user share: their own files are
    replaced when they are saved. Where that file cannot be opened, nothing is locked.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._descriptor: int | None = None

    def acquire(self, path: Path) -> None:
        """Lock the conversation in `path`. Raise `WorkspaceError` if another process has it."""
        try:
            self._lock(path)
        except (OSError, RuntimeError) as error:
            if getattr(error, "errno", None) in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                raise WorkspaceError(f"{path} is open in another terminal") from error

    def _lock(self, path: Path) -> None:
        if self._descriptor is None:
            file = history_file(self._environment).with_name("chat_locks")
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        digest = hashlib.sha256(os.fsencode(os.path.realpath(path))).digest()
        position = int.from_bytes(digest[:4]) >> 1
        if sys.platform == "win32":
            import msvcrt

            os.lseek(self._descriptor, position, os.SEEK_SET)
            msvcrt.locking(self._descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, position)
