"""The session of the REPL: a sandboxed session that a person watches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from ...errors import WorkspaceError
from ...executors.displays import DisplayFiles
from ...executors.session.sandbox import SandboxSessionCodeExecutor
from ..options.factory import InputCallback, create_session
from ..options.settings import Settings


class ReplExecutor(SandboxSessionCodeExecutor):
    """A session that shows where Ctrl-C interrupted it, and saves images in a separate folder.

    images        where images are saved
    has_colours   True if tracebacks have colours
    """

    _no_input: ClassVar[str] = (
        "input() is not available without a terminal. Put the value into the code or a file."
    )
    images: ImageFiles
    has_colours = False

    def _run_request(self, code: str, name: str = "") -> dict[str, Any]:
        request = super()._run_request(code, name)
        return {**request, "show_interrupts": True, "colours": self.has_colours}

    def _display_files(self) -> DisplayFiles:
        return self.images


class ImageFiles(DisplayFiles):
    """Save displayed images in `folder` as `1.png`, `2.png` and so on.

    Raise `WorkspaceError` if code could redirect the folder: it is deep in the work folder.
    """

    is_trusted = False  # code can create the folder

    def __init__(self, folder: str, work_dir: str) -> None:
        super().__init__(Path(folder).absolute())
        self._number = 0
        work = Path(work_dir).resolve()
        for parent in (
            Path(os.path.abspath(folder)).parent,
            Path(folder).absolute().parent.resolve(),
        ):
            if parent != work and parent.is_relative_to(work):
                raise WorkspaceError(
                    f"Images cannot be saved in {folder}: code in the session could redirect it. "
                    "Use a folder outside the work folder with --images."
                )

    def save(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        """See `DisplayFiles`. Save no HTML, which a terminal cannot show."""
        return super().save({mime: data[mime] for mime in data if mime != "text/html"})

    def new_name(self, suffix: str) -> str:
        """See `DisplayFiles`."""
        self._number += 1
        return f"{self._number}.{suffix}"


def make_repl_session(
    settings: Settings,
    folder: str,
    input_callback: InputCallback | None,
    *,
    image_folder: str,
    has_colours: bool,
) -> ReplExecutor:
    """Create a session that a person watches. `input_callback` answers `input()` in the session."""
    session = create_session(ReplExecutor, settings, folder, input_callback)
    session.images = ImageFiles(image_folder, folder)
    session.has_colours = has_colours
    return session
