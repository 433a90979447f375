"""An executor whose `work_dir` shows the files of its session, for the conformance suite.

The checks look at the work folder while a block runs. Here the server is on this machine, so the
folder can be replaced by a link to that of the session.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

from cellblock import AzureContainerCodeExecutor


class MirroredExecutor(AzureContainerCodeExecutor):
    """Replace `work_dir` by a link to the folder of the session while the executor runs."""

    def __init__(self, work_dir: str | None = None, **options: Any) -> None:
        self._mirror = None if work_dir is None else Path(work_dir)
        self._is_mirrored = self._mirror is None
        super().__init__(work_dir=None, **options)

    async def start(self) -> None:
        await super().start()
        if self._mirror is not None and not self._mirror.is_symlink():
            folder = await self._find_folder(self._mirror)
            self._is_mirrored = True
            self._mirror.rmdir()
            self._mirror.symlink_to(folder)

    async def execute_code_blocks(self, *arguments: Any, **options: Any) -> Any:
        if not self._is_mirrored:
            await self.start()
        return await super().execute_code_blocks(*arguments, **options)

    async def stop(self) -> None:
        await super().stop()
        if self._mirror is not None and self._mirror.is_symlink():
            self._mirror.unlink()
            self._mirror.mkdir()

    async def _find_folder(self, mirror: Path) -> Path:
        """Return the folder of the session on this machine: the one with the uploaded file."""
        name = f"marker-{uuid4().hex}"
        (mirror / name).touch()
        await self.upload_files([mirror / name])
        (mirror / name).unlink()
        found = None
        for folder in Path(os.environ.get("POOL_TMPDIR", tempfile.gettempdir())).iterdir():
            with contextlib.suppress(OSError):
                (folder / name).unlink()
                found = folder
        assert found is not None, "the folder of the session is not in the temporary folder"
        return found
