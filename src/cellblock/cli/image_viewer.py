"""Pictures that a session showed, opened on the user's screen."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

# Not pages, drawings in SVG or documents: what code in a sandbox put into those would run outside, in a browser.
_HARMLESS = (".png", ".jpg", ".gif", ".webp")
_OPENER = "xdg-open"


class Pictures:
    """Open files with the program that the user's desktop has for them."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._running: list[subprocess.Popen[bytes]] = []

    @classmethod
    def on(cls, environment: Mapping[str, str]) -> Pictures | None:
        """Give one, or None where there is no screen or nothing to open pictures with."""
        program = shutil.which(_OPENER, path=environment.get("PATH"))
        has_screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
        return cls(program) if program and has_screen else None

    def open(self, files: Iterable[str]) -> None:
        """Open the pictures among `files`; their programs outlive us. Raises `OSError`."""
        self._running = [process for process in self._running if process.poll() is None]
        for file in files:
            if Path(file).suffix in _HARMLESS:
                argv, nothing = [self._program, str(Path(file).absolute())], subprocess.DEVNULL
                self._running.append(
                    subprocess.Popen(
                        argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
                    )
                )
