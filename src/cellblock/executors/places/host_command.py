"""The command of a block that runs on this machine, where the work folder has its own path."""

from __future__ import annotations

from ...languages import Language
from ...runtime.handshake import CellJob
from ..workspace.workspace import Workspace


def command_on_host(workspace: Workspace, language: Language, name: str, python: str) -> CellJob:
    """Return what runs the file `name` under its path on this machine."""
    path = workspace.absolute_path(name)
    if language.name == "python":
        return CellJob(argv=(python, "-u", path))
    argv = list(language.argv or ())
    if argv and argv[0].startswith("python"):  # named by the first line of a shell's block
        argv[0] = python
    return CellJob(argv=(*argv, path))
