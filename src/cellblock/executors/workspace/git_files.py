"""GitFiles: the files that blocks have added, and that would make Git run a program outside."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from ... import startup_files

_MAX_CONFIG = 1 << 16  # bytes


class GitFiles:
    """Tell which new startup files have to be removed; those in `existing` are never.

    `read` returns up to so many bytes of a file, and raises `OSError`.
    """

    def __init__(self, existing: Iterable[str], read: Callable[[str, int], bytes]) -> None:
        self._existing, self._read = frozenset(existing), read

    def find_harmful(self, changed: Iterable[str], found: Iterable[str]) -> list[str]:
        """Return the harmful ones of the `changed` files, sorted.

        Also those of bare repositories among the `found` files, next to which one may have changed.
        """
        bare = (path for path in found if os.path.basename(path) == "HEAD")
        return [
            path
            for path in sorted({*changed, *bare} - self._existing)
            if startup_files.is_git_file(path) and not self._is_harmless(path)
        ]

    def _is_harmless(self, path: str) -> bool:
        folder, name = os.path.split(path)
        if name != "HEAD":
            return self._is_plain(path, if_missing=False)
        return all(  # Git obeys the files next to it
            self._is_plain(os.path.join(folder, name), if_missing=True)
            for name in ("config", "commondir")
        )

    def _is_plain(self, path: str, *, if_missing: bool) -> bool:
        try:
            content = self._read(path, _MAX_CONFIG + 1).decode()
        except FileNotFoundError:
            return if_missing
        except (OSError, UnicodeDecodeError):
            return False
        return len(content) <= _MAX_CONFIG and startup_files.is_plain_git_file(path, content)
