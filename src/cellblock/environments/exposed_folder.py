"""Work folders that would give code all files of the user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

Exposure = Literal["your home folder", "the folders of all users", "the whole machine"]


def exposure_of(folder: str | os.PathLike[str]) -> Exposure | None:
    """Return what code could read and change in `folder`: None if it is not the home or above."""
    given, home = (Path(os.path.expanduser(path)).resolve() for path in (folder, "~"))
    if not home.is_relative_to(given):
        return None
    if given == Path("/"):
        return "the whole machine"
    return "your home folder" if given == home else "the folders of all users"
