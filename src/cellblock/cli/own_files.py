"""Which files of the work folder are the person's: those that no block has written."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from ..blocks import CodeBlock, file_name
from ..runtime.linux.safe_folder import SafeFolder

_MAX_FILES = 10_000  # of a very large folder, only so many are remembered
_MAX_COMPARED_BYTES, _MAX_DEPTH = 1 << 20, 100
_INSIDE = "/workspace"  # the work folder as sandboxed blocks see it


class OwnFiles:
    """The files in `folder`, except those that are `written` by blocks, relative to the folder."""

    def __init__(self, folder: str, written: Iterable[str] = ()) -> None:
        self._folder = os.path.realpath(os.path.expanduser(folder))
        self._written = set(map(os.path.normpath, written))
        self._before = set[str]()

    def remember(self) -> None:
        """Remember the files, so that they stay the person's, and `take_deleted` finds them."""
        files = (path for path in _walk(self._folder) if path not in self._written)
        self._before = set(islice(files, _MAX_FILES))

    def add_written(self, paths: Iterable[str], *, whole: Iterable[str] = ()) -> None:
        """Record that blocks have written `paths`, and all that is in the files `whole`."""
        self._written |= set(map(os.path.normpath, [*paths, *whole]))
        self._before.difference_update(map(os.path.normpath, whole))

    def has(self, path: str) -> bool:
        """Return True if `path`, as code names it, is such a file, or a folder with one."""
        inside = self._relative(path)
        if inside is None or not os.path.lexists(os.path.join(self._folder, inside)):
            return False
        if os.path.isdir(os.path.join(self._folder, inside)):
            return any(map(self.is_own, _walk(self._folder, inside)))
        return self.is_own(inside)

    def has_any(self) -> bool:
        """Return True if there is such a file."""
        return any(map(self.is_own, _walk(self._folder)))

    def was_there(self, path: str) -> bool:
        """Return True if `path` is one of the files remembered, or written by blocks."""
        return path in self._before or path in self._written

    def take_deleted(self) -> list[str]:
        """Return those of the files remembered that are gone, each once."""
        deleted = [path for path in self._before if not os.path.lexists(f"{self._folder}/{path}")]
        self._before.difference_update(deleted)
        return sorted(deleted)

    def replaced_by(self, blocks: Sequence[CodeBlock]) -> dict[int, str]:
        """Return which of the files `blocks` replace by their `# filename:`, by number."""
        replaced: dict[int, str] = {}
        for number, block in enumerate(blocks):
            name = file_name(block.code)
            inside = None if name is None else self._relative(name)
            if inside is None or inside in replaced.values() or not self.is_own(inside):
                continue
            if not self._is_of_a_block(inside, block):
                replaced[number] = inside
        return replaced

    def replacement_note(self, path: str) -> str:
        """Return the line that names one of the files, which a block replaces."""
        since = "a block has changed it since" if path in self._written else "no block wrote it"
        return f"{path} is replaced: it was in the work folder, and {since}"

    def is_own(self, path: str) -> bool:
        """Return True if `path`, relative to the folder, is such a file, if it exists."""
        return path in self._before or path not in self._written

    def _relative(self, path: str) -> str | None:
        """Return `path` relative to the folder; None if it is outside."""
        if path == _INSIDE or path.startswith(f"{_INSIDE}/"):
            path = path.removeprefix(_INSIDE).lstrip("/")
        try:
            real = os.path.realpath(os.path.join(self._folder, path))
            if os.path.commonpath([real, self._folder]) != self._folder:
                return None
        except ValueError:  # a NUL, another drive
            return None
        return os.path.relpath(real, self._folder)

    def _is_of_a_block(self, path: str, block: CodeBlock) -> bool:
        """Return True if nothing is lost: the file is missing, the same, or says its own name."""
        *above, name = path.split(os.sep)
        try:
            with SafeFolder.at(self._folder, *above) as folder, folder.read_file(name) as file:
                data = file.read(_MAX_COMPARED_BYTES + 1)
        except OSError:
            return not os.path.lexists(os.path.join(self._folder, path))
        if len(data) > _MAX_COMPARED_BYTES:
            return False
        text = data.decode(errors="replace")
        if not text.strip():
            return True
        _, _, without_name = block.code.partition("\n")
        is_same = text.rstrip("\n") in (block.code.rstrip("\n"), without_name.rstrip("\n"))
        return is_same or file_name(text) == file_name(block.code)


def _walk(folder: str, inside: str = "") -> Iterator[str]:
    """Yield the files and links in `inside`, except those in hidden folders below it."""
    pending = [Path(inside)]
    while pending:
        above = pending.pop()
        with contextlib.suppress(OSError), SafeFolder.at(folder, *above.parts) as opened:
            for name, status in opened.statuses():
                if not stat.S_ISDIR(status.st_mode):
                    yield str(above / name)
                elif not name.startswith(".") and len(above.parts) < _MAX_DEPTH:
                    pending.append(above / name)
