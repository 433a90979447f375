"""Report a full disk as an error of this library."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Generator

from ...errors import CellblockError, WorkspaceError

_ERRORS = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def report_full_disk(failed: str) -> Generator[None]:
    """Raise `WorkspaceError` if the disk is full. `failed` is the beginning of its message."""
    try:
        yield
    except CellblockError:
        raise
    except OSError as error:
        if error.errno not in _ERRORS:
            raise
        raise WorkspaceError(
            f"{failed}: {error.strerror}. Remove files or end sessions, and try again."
        ) from error
