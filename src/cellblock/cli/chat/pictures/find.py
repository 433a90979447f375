"""Find the pictures that a block made: displayed ones, and files in the work folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ....errors import WorkspaceError
from ....events import Display, Event, FileCreated
from ....executors.workspace.workspace import Workspace
from ....models.image import Image
from ....runtime.linux.safe_folder import SafeFolder
from ..transcripts.entries import CodePicture

_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_MAX_BYTES = 4_000_000  # services refuse images of more than about 5 MB
_MAX_PICTURES = 10  # of one block


class PictureFinder:
    """Collect the pictures of one block. `folder` is the work folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._displayed: list[str] = []
        self._created: list[tuple[str, int]] = []

    def add_event(self, event: Event) -> None:
        """Add what the block did."""
        match event:
            case Display(files=files):
                self._displayed += [path for path in files if _is_picture(path)]
            case FileCreated(path=path, size_bytes=size) if _is_picture(path):
                self._created.append((path, size))
            case _:
                pass

    def pictures(self) -> list[CodePicture]:
        """Return the pictures, displayed ones first. Reads their files."""
        found = [*self._read_displayed(), *self._read_created()]
        return found[:_MAX_PICTURES]

    def _read_displayed(self) -> Iterator[CodePicture]:
        for path in self._displayed:
            yield CodePicture(path, _decode(_read(path)))

    def _read_created(self) -> Iterator[CodePicture]:
        shown = {os.path.abspath(path) for path in self._displayed}
        workspace = Workspace(Path(self._folder))
        for path, size in self._created:
            full = os.path.join(self._folder, path)
            if os.path.abspath(full) in shown:
                continue
            data = b""
            if size <= _MAX_BYTES:
                try:
                    data, _ = workspace.read(path)  # follows no link that code has made
                except WorkspaceError:
                    continue
            yield CodePicture(full, _decode(data))


def _is_picture(path: str) -> bool:
    return path.lower().endswith(_SUFFIXES)


def _read(path: str) -> bytes:
    """Return a displayed file. Code could have replaced it by a link or a pipe by now."""
    above, name = os.path.split(os.path.abspath(path))
    try:
        with SafeFolder.at(os.path.realpath(above)) as folder, folder.read_file(name) as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError:
        return b""
    return data if len(data) <= _MAX_BYTES else b""


def _decode(data: bytes) -> Image | None:
    try:
        return Image.from_bytes(data)
    except ValueError:  # no picture, in spite of its name
        return None
