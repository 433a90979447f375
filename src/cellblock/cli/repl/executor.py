"""The session of the REPL: a sandboxed session that a person watches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import WorkspaceError
from ...executors.displays import DisplayFiles
from ...executors.run_options import RunOptions
from ...executors.session.sandbox import SandboxSessionCodeExecutor
from ..options.factory import InputCallback, create_session
from ..options.settings import Settings

_NO_INPUT = "input() is not available without a terminal. Put the value into the code or a file."


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
    input_is_timed: bool = True,
) -> SandboxSessionCodeExecutor:
    """Create a session that a person watches. `input_callback` answers `input()` in the session."""
    session = create_session(settings, folder, input_callback)
    session.default_options = RunOptions(
        has_colours=has_colours,
        show_interrupts=True,
        no_input=_NO_INPUT,
        input_is_timed=input_is_timed,
        displays=ImageFiles(image_folder, folder),
    )
    return session
