"""A download writes nothing outside its target, whatever a box says that its folders hold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from pathlib import Path

import pytest

from cellblock import SandboxSessionCodeExecutor
from cellblock.box.life import BoxLife
from cellblock.box.transfers import Download
from cellblock.runtime.box_orders import BoxAnswer, BoxOrder, FileEntry, ListFolder


class LyingBox(BoxLife):
    """A box whose folders have one entry, of any name."""

    def __init__(self, name: str, kind: str) -> None:
        super().__init__(SandboxSessionCodeExecutor(), None)
        self._entry = FileEntry(name, f"/workspace/{name}", kind, False, 0, 0o755, 0.0)

    async def ask(
        self, order: BoxOrder, data: AsyncIterable[bytes] | None = None, *, path: str = ""
    ) -> tuple[BoxAnswer, bytes]:
        """See `BoxLife`."""
        if isinstance(order, ListFolder):
            return BoxAnswer(entries=(self._entry,)), b""
        return BoxAnswer(entries=(FileEntry("top", "/top", "folder", False, 0, 0o755, 0.0),)), b""


def test_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    for kind in ("file", "folder"):
        for name in ("../outside", "..", ".", "", "a/b", "/tmp/outside", "a\0b"):
            download = Download(LyingBox(name, kind), user="", room=None)
            with pytest.raises(OSError, match="invalid name"):
                asyncio.run(download.run("top", tmp_path / "target"))
            assert [path.name for path in tmp_path.rglob("*")] == ["target"]
            (tmp_path / "target").rmdir()
