"""Folders of ours beside a container, which nobody in there can remove when their owner has died."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from pathlib import Path

from ...runtime.linux.rmtree import remove_tree

# Its input ends with us, however that came.
_WATCH = 'trap "" HUP INT TERM; read -r _; rm -rf -- "$0"'


class Caretaker:
    """Removes the folder `path` when it is told to, or soon after this process was killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        null = subprocess.DEVNULL
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, path],
            stdin=subprocess.PIPE,
            stdout=null,
            stderr=null,
            start_new_session=True,
            cwd="/",
        )

    def remove(self) -> None:
        """Remove the folder, and be done."""
        remove_tree(str(self._path))
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.wait()


class Attic:
    """A temporary folder for several users; it goes with the last of them, or soon after this process was killed."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="cellblock-attic-"))
        self.path.chmod(0o711)  # whom a room is for comes through; rooms are closed
        self._users = 0
        self._caretaker = Caretaker(self.path)

    def take(self) -> None:
        """Use it."""
        self._users += 1

    async def leave(self) -> None:
        """Use it no more."""
        self._users -= 1
        if self._users == 0:
            await asyncio.to_thread(self._caretaker.remove)

    def room(self, name: str) -> Path:
        """Give a folder in it, made when it is not there."""
        made = self.path / name
        made.mkdir(mode=0o700, exist_ok=True)
        return made
