"""Remove a folder that code has written into, whatever modes it left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any


def remove_tree(path: str) -> None:
    """Remove `path` and all below it, as far as that is possible; does nothing when it is not there."""
    for _ in range(3):  # something may still be writing into it
        if not os.path.lexists(path):
            return
        shutil.rmtree(path, onerror=_open_up)


def _open_up(_: Any, name: str, __: Any) -> None:
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(name), 0o700)
        if os.path.isdir(name) and not os.path.islink(name):
            os.chmod(name, 0o700)
            shutil.rmtree(name, ignore_errors=True)
        else:
            os.unlink(name)
