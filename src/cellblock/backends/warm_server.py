"""A warmed-up cell server in a sandbox, which cells are forked from for any number of executors."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ..environments.interpreter import lay_environment
from ..runtime.linux.rmtree import remove_tree
from .base import Connection
from .sandbox import ENVIRONMENT, SandboxPlace


class WarmServer:
    """One server, and the folders that its zygote sees in the place of an executor's. Belongs to the engine's loop."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._scratch: Path | None = None
        self._place: SandboxPlace | None = None

    async def _launch(self, place: SandboxPlace) -> Connection:
        """Start it: for guests, where `place` has a door, else for live sessions."""
        self._place = place
        self._scratch = Path(tempfile.mkdtemp(prefix="cellblock-scratch-"))
        place.scratch, place.work_dir = str(self._scratch), str(self._scratch / "work")
        place.delete = [place.scratch]
        try:
            os.mkdir(place.work_dir)
            self.furnish(self._scratch)
            self._connection = await place.open()
        except BaseException:
            remove_tree(place.scratch)
            raise
        return self._connection

    def furnish(self, folder: Path) -> None:
        """Make the home and the Python environment of one executor in `folder`."""
        assert self._place is not None
        os.makedirs(folder / "home")
        lay_environment(
            folder / "env", self._place.interpreter, self._place.packages, seen_as=ENVIRONMENT
        )

    async def close(self) -> None:
        """End the server, and all that it runs. Does nothing when it does not run."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        if self._scratch is not None:
            remove_tree(str(self._scratch))
            self._scratch = None
