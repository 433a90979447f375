"""The folder of a server's temporary files, which the next server removes if it is left behind.

The watchdogs of a server remove its files when it is killed. They are killed with it where all
processes of a service end together: by systemd, a container engine or Kubernetes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

from ..executors.workspace.cleanup_watchdog import CleanupWatchdog
from ..executors.workspace.full_disk import report_full_disk
from ..runtime.linux.safe_folder import SafeFolder, remove_tree

_PREFIX = "cellblock-server-"


@contextlib.contextmanager
def own_temporary_folder(on_removal: Callable[[Path], None]) -> Generator[Path]:
    """Yield a folder for all temporary files of this process, which is removed at the end.

    First remove those of servers that were killed, after a call of `on_removal` for each. Raise
    `WorkspaceError` if the disk is full.
    """
    usual = tempfile.gettempdir()
    _remove_abandoned(Path(usual), on_removal)
    with contextlib.ExitStack() as stack:
        with report_full_disk("The server cannot be started"):
            path = _make_locked_folder(stack)
        # Users of containers may pass through to their own folder, but not list this one.
        path.chmod(0o711)
        stack.callback(CleanupWatchdog(path).remove)
        stack.callback(setattr, tempfile, "tempdir", usual)
        tempfile.tempdir = str(path)
        yield path


def _remove_abandoned(parent: Path, on_removal: Callable[[Path], None]) -> None:
    """Remove the folders that no process has locked. Others of this name may be foreign."""
    for path in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError), _locked(path) as folder:
            if os.fstat(folder.descriptor).st_uid == os.geteuid():
                on_removal(path)
                remove_tree(str(path))


def _make_locked_folder(stack: contextlib.ExitStack) -> Path:
    """Return a new folder, which `stack` unlocks. Until it is locked, it can be removed."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with (
            contextlib.suppress(FileNotFoundError, BlockingIOError),
            contextlib.ExitStack() as locked,
        ):
            locked.enter_context(_locked(path))
            if path.exists():
                stack.enter_context(locked.pop_all())
                return path


@contextlib.contextmanager
def _locked(path: Path) -> Generator[SafeFolder]:
    """Open and lock a folder. Raise `BlockingIOError` if another process has locked it."""
    with SafeFolder.at(path) as folder:
        fcntl.flock(folder.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
