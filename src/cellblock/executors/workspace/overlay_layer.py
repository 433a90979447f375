"""Copy what a box has changed in its root file system: the writable layer of an overlayfs."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from ...runtime.linux.safe_folder import ALL_RIGHTS, READ_RIGHTS, SafeFolder
from . import snapshot

# Says that a folder hides the one of the image, with all that is in it; see the kernel's overlayfs.
_OPAQUE = "user.overlay.opaque"


def copy_layer(source: Path, target: Path, max_copied_bytes: int | None = None) -> None:
    """Copy a layer to the new folder `target`. Raise `CheckpointError` as `copy_folder` does."""
    snapshot.copy_folder(source, target, max_copied_bytes)
    with SafeFolder.at(source) as layer, SafeFolder.at(target) as copy:
        _copy_marks(layer, copy)


def _copy_marks(source: SafeFolder, target: SafeFolder) -> None:
    """Copy what says which files of the image are removed: devices 0, 0 and opaque folders."""
    with contextlib.suppress(OSError):  # it is not opaque
        os.setxattr(target.descriptor, _OPAQUE, os.getxattr(source.descriptor, _OPAQUE))
    for name, status in source.statuses():
        if stat.S_ISCHR(status.st_mode):
            target.create_whiteout(name)
        elif stat.S_ISDIR(status.st_mode):
            with (
                source.folder(name, rights=READ_RIGHTS) as inner,
                target.folder(name, rights=ALL_RIGHTS) as copy,
            ):
                _copy_marks(inner, copy)
