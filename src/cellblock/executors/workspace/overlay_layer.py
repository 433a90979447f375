"""Copy what a box has changed in its root file system: the writable layer of an overlayfs."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from ...runtime.cell.command_root import COPY, UPPER
from ...runtime.linux.safe_folder import ALL_RIGHTS, READ_RIGHTS, SafeFolder
from . import snapshot

# Says that a folder hides the one of the image, with all that is in it; see the kernel's overlayfs.
_OPAQUE = "user.overlay.opaque"


def is_copied(folder: Path) -> bool:
    """Return True if `folder`, that of a box, has a copy of the image instead of a layer."""
    return (folder / COPY).is_dir()


def copy_changes(folder: Path, target: Path, max_copied_bytes: int | None = None) -> None:
    """Copy what a box has in `folder` to the folder `target` of a fork of it.

    Raise `CheckpointError` as `copy_folder` does.
    """
    name = COPY if is_copied(folder) else UPPER
    snapshot.copy_folder(folder / name, target / name, max_copied_bytes)
    with SafeFolder.at(folder / name) as layer, SafeFolder.at(target / name) as copy:
        _copy_marks(layer, copy)


def _copy_marks(source: SafeFolder, target: SafeFolder) -> None:
    """Copy what says which files of the image are removed: devices 0, 0 and opaque folders."""
    assert sys.platform == "linux"
    with contextlib.suppress(OSError):  # it is not opaque
        os.setxattr(target.descriptor, _OPAQUE, os.getxattr(source.descriptor, _OPAQUE))
    for name, status in source.statuses():
        # Commands may run meanwhile if the fork is one of a checkpoint.
        with contextlib.suppress(FileNotFoundError, FileExistsError, NotADirectoryError):
            if stat.S_ISCHR(status.st_mode):
                target.create_whiteout(name)
            elif stat.S_ISDIR(status.st_mode):
                with (
                    source.folder(name, rights=READ_RIGHTS) as inner,
                    target.folder(name, rights=ALL_RIGHTS) as copy,
                ):
                    _copy_marks(inner, copy)
