"""What commands of a box see as `/`, if that is not the root of the sandbox."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class RootFileSystem:
    """The root file system of a box. Nothing writes to it.

    path          a folder of this machine
    environment   the variables that its programs expect, as "NAME=VALUE"
    work_dir      the folder in which they expect to start: an absolute path, or ""
    """

    path: str
    environment: tuple[str, ...] = ()
    work_dir: str = ""


RootSource = str | os.PathLike[str] | RootFileSystem
