"""Open the images that a session displayed on the user's screen."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

# Not HTML, SVG or documents: scripts in them would run outside the sandbox, in a browser.
_SAFE_SUFFIXES = (".png", ".jpg", ".gif", ".webp")
_OPENER = "xdg-open"


class ImageViewer:
    """Open image files with the desktop's program for them."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._running: list[subprocess.Popen[bytes]] = []

    @classmethod
    def find(cls, environment: Mapping[str, str]) -> ImageViewer | None:
        """Return a viewer, or None if there is no screen or no `xdg-open`."""
        program = shutil.which(_OPENER, path=environment.get("PATH"))
        has_screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
        return cls(program) if program and has_screen else None

    def open(self, files: Iterable[str]) -> None:
        """Open the images among `files`. The viewers keep running. Raise `OSError`."""
        self._running = [process for process in self._running if process.poll() is None]
        for file in files:
            if Path(file).suffix in _SAFE_SUFFIXES:
                argv, nothing = [self._program, str(Path(file).absolute())], subprocess.DEVNULL
                self._running.append(
                    subprocess.Popen(
                        argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
                    )
                )
